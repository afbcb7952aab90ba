"""Tests that need programs of others are skipped without them, and fail in CI, which installs them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.programs import CI, PACKAGES, check, missing

ROOT = Path(__file__).parents[1]
REASON = "needs ping: apt-get install iputils-ping"


@pytest.fixture
def without_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host that has no program. Returns the only folder of its PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_what_is_missing_comes_with_its_packages(without_programs: Path) -> None:
    assert missing(["ping"]) == REASON
    assert missing(["docker", "dockerd"]) == "needs docker, dockerd: apt-get install docker.io"
    (without_programs / "ping").touch(mode=0o755)
    assert missing(["ping"]) == ""


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_a_test_without_its_program_is_skipped_and_fails_in_ci(
    ci: str, outcome: type[BaseException], without_programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CI, ci)
    needs_ping: Any = SimpleNamespace(iter_markers=lambda name: [pytest.mark.programs("ping").mark])
    with pytest.raises(outcome, match=REASON):
        check(cast(pytest.Item, needs_ping))


def test_ci_installs_all_of_them() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert f"{CI}=1" in script
    installed = set(script.split())
    assert set(PACKAGES.values()) - installed == set()
