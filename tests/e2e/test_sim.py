"""The `sim` driver as a user has it: a process that may be interrupted or killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.harness import SMALL, Background, wait_for

pytestmark = pytest.mark.e2e

LONG = SMALL.replace("rounds: 3", "rounds: 100000")


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_ctrl_c_ends_a_simulation_with_a_report(tmp_path: Path) -> None:
    with Background(tmp_path, LONG, "--driver", "sim") as run:
        run.wait_round(3)
        run.process.send_signal(signal.SIGINT)
        result = run.result()
        assert result.summary["ended"] == "interrupted"
        assert result.summary["rounds"] >= 2
        assert (run.directory.path / "report.html").exists()


def test_a_killed_simulation_leaves_no_process(tmp_path: Path) -> None:
    with Background(tmp_path, LONG, "--driver", "sim", "--workers", "2") as run:
        run.wait_round(2)
        workers = children(run.process.pid)
        assert len(workers) == 2
        os.kill(run.process.pid, signal.SIGKILL)
        run.process.wait()
        wait_for(lambda: None if any(alive(pid) for pid in workers) else True, "the workers to end", 10.0)


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended waits, as a zombie, for somebody to ask about it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
