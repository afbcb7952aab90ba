from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.host.kernel.usage import of_process
from orchestrator.host.process import processes
from orchestrator.host.process.processes import end, labels, run_processes

WAIT = "import sys; print('here', flush=True); sys.stdin.read()"


def start(run: str, tmp_path: Path, program: str = WAIT) -> subprocess.Popen[bytes]:
    (tmp_path / run).mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **labels(run, tmp_path / run, "node")},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    return process


def test_processes_are_found_by_label_and_ended_by_run(tmp_path: Path) -> None:
    run, other = f"test-{os.getpid()}-a", f"test-{os.getpid()}-b"
    with start(run, tmp_path) as mine, start(other, tmp_path) as theirs:
        (found,) = run_processes(run)
        assert (found.pid, found.part, found.directory) == (mine.pid, "node", tmp_path / run)
        assert end([found]) == []
        assert mine.wait() == -9
        assert run_processes(run) == []
        assert [each.pid for each in run_processes(other)] == [theirs.pid]
        theirs.communicate(b"")


def test_a_process_that_gives_itself_an_odd_name_is_found_and_measured(tmp_path: Path) -> None:
    """PR_SET_NAME (prctl(2)) takes any bytes, and a node may run any program."""
    run, named = f"test-{os.getpid()}-e", "import ctypes; ctypes.CDLL(None).prctl(15, b'a\\xff)'); "
    with start(run, tmp_path, named + WAIT) as mine:
        (found,) = run_processes(run)
        assert found.command == "a\ufffd)"
        assert of_process(Path(f"/proc/{mine.pid}")).rss > 0
        mine.communicate(b"")


def test_proc_is_searched_once_however_many_processes_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, searches, search = f"test-{os.getpid()}-d", itertools.count(1), processes.run_processes
    with start(run, tmp_path) as one, start(run, tmp_path) as other:
        found = search(run)
        monkeypatch.setattr(processes, "run_processes", lambda *runs: next(searches) and search(*runs))
        assert end(found) == []
        assert (one.wait(), other.wait(), next(searches)) == (-9, -9, 2)


def test_a_process_that_ends_by_itself_in_time_gets_no_signal(tmp_path: Path) -> None:
    with start(f"test-{os.getpid()}-c", tmp_path) as mine:
        (found,) = run_processes(f"test-{os.getpid()}-c")
        assert mine.stdin is not None
        mine.stdin.close()  # it now ends, at a time of its own
        mine.stdin = None
        assert end([found], patience=60.0) == []
        assert mine.wait() == 0
