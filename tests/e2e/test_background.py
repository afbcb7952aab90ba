"""A run in the background: `up --detach`, and `wait`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from orchestrator.record.directory import RunDirectory
from tests.e2e.harness import FEW, PACED, ROOT, command, json_of, wait_for

pytestmark = pytest.mark.e2e

LONG = FEW.replace("rounds: 3", "rounds: 100000") + PACED
SLOWLY = ("--driver", "sim", "--pace", "1x")


def detached(tmp_path: Path, scenario: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`up --detach` of a scenario from standard input, whose pipes close although the run goes on."""
    words = command("up", "-", "--runs", tmp_path / "runs", "--detach", *arguments)
    return subprocess.run(words, cwd=ROOT, input=scenario, capture_output=True, text=True, timeout=60, check=False)


def test_a_run_continues_in_the_background_to_its_end(tmp_path: Path) -> None:
    done = detached(tmp_path, FEW + "expect: {accuracy: 100%}\n", "--driver", "sim")
    assert done.returncode == 0, done.stderr
    run = done.stdout.strip()
    assert f"`wait {run}` follows it" in done.stderr
    summary = json_of("wait", run, "--runs", tmp_path / "runs", code=3)  # as of `up`: one that is expected is missing
    assert (summary["ended"], summary["rounds"]) == ("rounds", 3)
    assert Path(summary["run"], "report.html").exists()
    assert "] training\n" in Path(summary["run"], "logs", "up.log").read_text()
    lines = json_of("logs", "up", "--run", run, "--runs", tmp_path / "runs")["lines"]
    assert lines[-1].split("] ")[1].startswith("round 3 of 3 starts")


def test_a_run_in_the_background_has_no_terminal_and_can_be_ended(tmp_path: Path) -> None:
    done = detached(tmp_path, LONG, *SLOWLY, "--json")
    told = json.loads(done.stdout)
    directory = RunDirectory(Path(told["directory"]))
    assert directory.run == told["run"]
    holder = directory.holder()
    assert holder is not None
    assert os.getsid(holder) == holder
    subprocess.run(command("down", told["run"], "--runs", tmp_path / "runs"), cwd=ROOT, check=True)
    assert json_of("wait", "--runs", tmp_path / "runs", code=130)["ended"] == "interrupted"


def test_a_run_that_was_killed(tmp_path: Path) -> None:
    directory = RunDirectory(Path(json.loads(detached(tmp_path, LONG, *SLOWLY, "--json").stdout)["directory"]))
    words = command("wait", "--runs", tmp_path / "runs")
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline()  # it follows the run
        holder = directory.holder()
        assert holder is not None
        os.kill(holder, signal.SIGKILL)
        _, errors = waiting.communicate(timeout=30)
    assert waiting.returncode == 1
    assert errors.splitlines()[-1].startswith(f"error: {directory.run} was killed: `resume {directory.run}`")
    subprocess.run(command("down", "--runs", tmp_path / "runs"), cwd=ROOT, check=True)
    wait_for(lambda: None if directory.nodes.exists() else True, "the end of what was left")


@pytest.mark.parametrize(
    ("scenario", "option", "reason"),
    [
        (FEW.replace("rounds: 3", "rounds: three"), "--json", "algorithm.rounds"),
        (FEW, "--serve", "--serve keeps the terminal"),
    ],
)
def test_a_run_that_cannot_be_started(tmp_path: Path, scenario: str, option: str, reason: str) -> None:
    done = detached(tmp_path, scenario, option)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_host_that_refuses_after_the_run_has_a_folder(tmp_path: Path) -> None:
    """The link engine is tried out then; without netem, as in many machines, the kernel's is refused."""
    done = detached(tmp_path, FEW, "--engine", "kernel")
    if done.returncode == 0:
        subprocess.run(command("down", done.stdout.strip(), "--runs", tmp_path / "runs"), cwd=ROOT, check=True)
        pytest.skip("this kernel has netem")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: the kernel engine does not" in done.stderr
    assert list((tmp_path / "runs").iterdir()) == []
