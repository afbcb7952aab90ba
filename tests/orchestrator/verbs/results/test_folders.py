"""The commands about the folders of runs: listing, waiting, opening, removing."""

from __future__ import annotations

import json
import subprocess
import sys
import webbrowser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli.main import cli
from orchestrator.errors import RunError
from orchestrator.host.process import processes
from orchestrator.host.process.processes import RunProcess
from orchestrator.record.directory import RunDirectory
from orchestrator.verbs.background import OUTPUT
from tests.orchestrator.example_run import Example

FIRST, SECOND = "good-20260101-120000-0000", "late-20260102-120000-0000"


def cli_result(*words: str | Path, typed: str = "") -> Result:
    return CliRunner().invoke(cli, list(map(str, words)), input=typed)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A run with all its rounds, a later one that was killed, and in a sweep one that failed."""
    folder = tmp_path / "runs"
    Example(rounds=2).build(folder / FIRST)
    Example(rounds=2, rounds_made=1, ending=None).build(folder / SECOND)
    Example(rounds=2, rounds_made=1, ending="failed").build(folder / "sweep" / FIRST)
    return folder


def test_runs_are_listed(runs: Path) -> None:
    with RunDirectory(runs / SECOND).held():
        result = cli_result("ls", "--runs", runs)
    _, _, *lines = result.output.splitlines()
    assert [line.split()[:2] for line in lines] == [
        [SECOND, "running"],
        *sorted([[FIRST, "pass"], [f"sweep/{FIRST}", "fail"]]),
    ]
    assert "2026-01-01 " in lines[1]
    assert json.loads(cli_result("ls", "--runs", runs, "--json").stdout)["runs"][0]["run"] == SECOND
    assert "start one with `up SCENARIO`" in cli_result("ls", "--runs", runs / "none").output


@pytest.mark.parametrize(("name", "code", "verdict"), [(FIRST, 0, "pass"), (f"sweep/{FIRST}", 1, "fail")])
def test_wait_ends_as_the_run_did(runs: Path, name: str, code: int, verdict: str) -> None:
    result = cli_result("wait", name, "--runs", runs, "--json")
    assert (result.exit_code, json.loads(result.stdout)["verdict"]) == (code, verdict)
    shown = cli_result("wait", name, "--runs", runs)
    assert (shown.exit_code, shown.stdout.split()[:2]) == (code, ["verdict", verdict])


def test_wait_shows_what_a_run_in_the_background_prints(runs: Path) -> None:
    (runs / FIRST / "logs").mkdir(exist_ok=True)
    (runs / FIRST / OUTPUT).write_text("[1.0 s] training\n")
    assert cli_result("wait", FIRST, "--runs", runs).stderr == "[1.0 s] training\n"


def test_wait_waits_for_the_report_of_a_run_that_has_released_its_lock(runs: Path) -> None:
    directory = RunDirectory(runs / FIRST)
    directory.report.unlink(missing_ok=True)
    words = ["sh", "-c", 'sleep 0.5; echo > "$0"; exec sleep 60', str(directory.report)]
    with subprocess.Popen(words) as writer:
        directory.lock.write_text(f"{writer.pid}\n")
        result = cli_result("wait", FIRST, "--runs", runs)
        writer.kill()
    assert (result.exit_code, directory.report.exists()) == (0, True)


def test_wait_for_a_run_that_was_killed(runs: Path) -> None:
    result = cli_result("wait", "--runs", runs)
    assert isinstance(result.exception, RunError)
    assert f"{SECOND} was killed: `resume {SECOND}` continues" in str(result.exception)


@pytest.mark.parametrize("display", ["", ":0"])
def test_open_makes_a_missing_report(runs: Path, monkeypatch: pytest.MonkeyPatch, display: str) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    report = runs / FIRST / "report.html"
    result = cli_result("open", FIRST, "--runs", runs)
    assert result.output == f"{report}\n"
    assert "<html" in report.read_text()
    assert opened == ([report.as_uri()] if display else [])


def test_runs_are_removed(runs: Path) -> None:
    assert json.loads(cli_result("rm", FIRST, SECOND, "--runs", runs, "--json").stdout) == {"removed": [FIRST, SECOND]}
    assert [path.name for path in runs.iterdir()] == ["sweep"]
    assert cli_result("rm", f"sweep/{FIRST}", "--runs", runs).output == f"{FIRST}: removed\n"
    assert list((runs / "sweep").iterdir()) == []


@pytest.mark.parametrize("typed", ["n\n", "y\n", ""])
def test_on_a_terminal_a_removal_is_confirmed(runs: Path, monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    monkeypatch.setattr("orchestrator.cli.folders.on_terminal", lambda: True)
    result = cli_result("rm", FIRST, "--runs", runs, typed=typed)
    assert f"{FIRST}\nremove 1 run for good? [y/N]" in result.stderr.replace("  ", "")
    assert (runs / FIRST).exists() == (typed != "y\n")
    assert (result.exit_code == 0) == (typed == "y\n")
    assert cli_result("rm", SECOND, "--yes", "--runs", runs).exit_code == 0


def test_a_run_that_is_not_over_stays_and_so_do_the_others(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> str:
        result = cli_result("rm", FIRST, SECOND, "--runs", runs)
        assert (runs / FIRST).exists()
        return str(result.exception)

    with RunDirectory(runs / SECOND).held():
        assert f"{SECOND} is still running (process " in refused()
    (runs / SECOND / "nodes").mkdir()
    assert f"still on this host: `down {SECOND}`" in refused()
    (runs / SECOND / "nodes").rmdir()
    node = RunProcess(93, SECOND, runs / SECOND, "node", "cloud")
    monkeypatch.setattr(processes, "run_processes", lambda run: [node] if run == SECOND else [])
    assert f"still on this host: `down {SECOND}`" in refused()


def test_nothing_outside_the_folder_is_removed(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Example(rounds=2).build(tmp_path / "elsewhere" / "other-20260101-120000-0000")
    (runs / "link").symlink_to(other)
    (runs / "above").symlink_to(other.parent)
    monkeypatch.chdir(tmp_path)
    for name in ("link", f"above/{other.name}", f"../elsewhere/{other.name}", str(other), f"elsewhere/{other.name}"):
        assert f"{name} is not removed: it leads" in str(cli_result("rm", name, "--runs", runs).exception)
    for name in (".", "..", "sweep", "nothing"):
        assert f"there is no run '{name}'" in str(cli_result("rm", name, "--runs", runs).exception)
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (runs / FIRST / "checkpoints").symlink_to(kept)
    assert cli_result("rm", f"runs/{FIRST}", "--runs", runs).exit_code == 0
    assert (kept / "file").exists()
    assert (other / "run.db").exists()
    assert not (runs / FIRST).exists()
