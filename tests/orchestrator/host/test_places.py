from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli import main as cli
from orchestrator.errors import PlaceError
from orchestrator.host.places import check_file, check_folder
from tests.texts import containing

SCENARIO = Path(__file__).parents[3] / "scenarios" / "hello.yaml"
ARGUMENTS = ("up", str(SCENARIO), "--driver", "sim")


def test_a_place_that_will_do_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "old.xml").write_text("old")
    check_folder(tmp_path / "a" / "b", "choose another")
    check_file(tmp_path / "a" / "new.xml", "choose another")
    check_file(tmp_path / "old.xml", "choose another")
    check_file(Path("/dev/null"), "choose another")
    assert list(tmp_path.iterdir()) == [tmp_path / "old.xml"]
    assert (tmp_path / "old.xml").read_text() == "old"


@pytest.mark.parametrize("name", ["file/x.xml", "file/y/x.xml", "folder", "../" * 40 + "proc/x.xml", "n" * 300])
def test_a_file_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(PlaceError, match=r"cannot be written \(.+\): choose another"):
        check_file(tmp_path / name, "choose another")


@pytest.mark.parametrize("option", ["--runs", "--junit"])
def test_it_is_reported_before_the_run_with_the_exit_code_of_bad_usage(
    tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    options = {"--runs": str(tmp_path / "runs")} | {option: str(tmp_path / "file" / "x")}
    words = [word for pair in options.items() for word in pair]
    monkeypatch.setattr(sys, "argv", ["edgebed", *ARGUMENTS, *words])
    assert cli.carry_out() == 2
    output, errors = capsys.readouterr()
    assert (output, errors.count("\n"), errors.startswith("error: ")) == ("", 1, True)
    assert option in errors
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_folder_where_not_even_root_may_write(tmp_path: Path) -> None:
    with pytest.raises(PlaceError, match=r"nothing can be written in /proc/runs"):
        check_folder(Path("/proc/runs"), "choose another")


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'cd "$0" && rmdir "$0" && exec "$@"', gone, sys.executable, "-m", "orchestrator", *ARGUMENTS],
        env={**os.environ, "PYTHONPATH": str(SCENARIO.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == containing("error", "gone (No such file")
