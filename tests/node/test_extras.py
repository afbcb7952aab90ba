"""The command that a message names installs the extra into the same environment, from the same place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from node import extras
from node.extras import install_command, installed_from, lacking, requirement

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Each test looks again where edgebed was installed from."""
    installed_from.cache_clear()
    yield
    installed_from.cache_clear()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages that has edgebed, as pip installs a release. Returns the folder of its description."""
    site = tmp_path / "site-packages"
    description = site / "edgebed-0.2.0.dist-info"
    description.mkdir(parents=True)
    (description / "METADATA").write_text("Metadata-Version: 2.1\nName: edgebed\nVersion: 0.2.0\n")
    monkeypatch.setattr(extras, "CHECKOUT", site)
    monkeypatch.setattr(extras, "UV_RECEIPT", tmp_path / "uv-receipt.toml")
    monkeypatch.setattr("sys.path", [str(site)])
    return description


def from_folder(description: Path, folder: Path) -> None:
    """Add what pip and uv record of an installation from a folder (PEP 610)."""
    (description / "direct_url.json").write_text(json.dumps({"url": folder.as_uri(), "dir_info": {}}))


def test_a_clone_installs_itself() -> None:
    assert install_command("plots") == f"pip install --editable '{ROOT}[plots]'"
    assert requirement("learning", "0.2.0") == f"edgebed[learning] @ file://{ROOT}"


def test_a_release_comes_from_the_index(installed: Path) -> None:
    assert installed_from() is None
    assert install_command("learning") == "pip install 'edgebed[learning]'"
    assert requirement("learning", "0.2.0") == "edgebed[learning]==0.2.0"


def test_a_copy_of_a_clone_comes_from_the_clone(installed: Path, tmp_path: Path) -> None:
    clone = tmp_path / "my clone"
    clone.mkdir()
    from_folder(installed, clone)
    assert install_command("learning") == f"pip install '{clone}[learning]'"
    assert requirement("learning", "0.2.0") == f"edgebed[learning] @ file://{tmp_path}/my%20clone"


def test_a_clone_that_was_removed_is_not_named(installed: Path, tmp_path: Path) -> None:
    from_folder(installed, tmp_path / "removed")
    assert install_command("learning") == "pip install 'edgebed[learning]'"


def test_a_tool_of_uv_is_installed_by_uv(installed: Path, tmp_path: Path) -> None:
    extras.UV_RECEIPT.touch()
    from_folder(installed, tmp_path)
    assert install_command("learning") == f"uv tool install '{tmp_path}[learning]'"


def test_the_extra_of_a_module() -> None:
    assert lacking(ModuleNotFoundError(name="PIL.Image")) == f"needs Pillow: {install_command('learning')}"
    assert lacking(ModuleNotFoundError(name="theirs")) is None
    assert lacking(ImportError("broken")) is None
