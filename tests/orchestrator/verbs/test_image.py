"""The folder in which the images of nodes and agents are built."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.errors import PlaceError
from orchestrator.verbs.image import make_build_folder
from tests.images.test_dockerfiles import IMAGES, arguments

ROOT = Path(__file__).parents[3]


def files(folder: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_it_has_what_the_dockerfiles_copy(tmp_path: Path) -> None:
    folder = tmp_path / "build"
    done = CliRunner().invoke(cli, ["image", str(folder)])
    assert done.exit_code == 0, done.output
    nodes, agents = done.stderr.splitlines()
    assert nodes.startswith(f"next: cd {folder} && docker build --file images/node/Dockerfile --tag ")
    assert agents.startswith("for runs on several hosts: docker build --file images/agent/Dockerfile --tag ")
    for name in ("edgebed", "images", "netem", "node"):
        assert files(folder / name) == files(ROOT / name)
    for name in ("agent", "host", "planning"):  # verbs/ has a link, which the folder has not
        assert files(folder / "orchestrator" / name) == files(ROOT / "orchestrator" / name)
    assert not list(folder.rglob("__pycache__"))
    for copy in (each for image in IMAGES for each in arguments(image, "COPY") if "--from" not in each):
        assert any(list(folder.glob(source)) for source in copy.split()[:-1])


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(PlaceError, match="is there already and is not empty: name a new folder"):
        make_build_folder(tmp_path)
    (tmp_path / "empty").mkdir()
    make_build_folder(tmp_path / "empty")
    (tmp_path / "file").write_text("")
    with pytest.raises(PlaceError, match="cannot be made"):
        make_build_folder(tmp_path / "file" / "below")
