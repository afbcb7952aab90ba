from __future__ import annotations

import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from node.runtime import turns
from node.runtime.turns import PATIENCE, TURN, Semaphore, Turn, take_long_turns


def seconds(waiting: Callable[[], object]) -> float:
    began = time.monotonic()
    waiting()
    return time.monotonic() - began


def test_no_more_compute_at_once_than_there_are_processors() -> None:
    of_host = Semaphore(2)
    computing, most, changing = 0, 0, threading.Lock()

    def compute(turn: Turn) -> None:
        nonlocal computing, most
        with turn:
            with changing:
                computing += 1
                most = max(most, computing)
            time.sleep(0.01)
            with changing:
                computing -= 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(compute, [Turn(of_host) for _ in range(6)]))
    assert most == 2


def test_who_waits_too_long_computes_without_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 0.05)
    of_host = Semaphore(1)
    keeping, late, later = (Turn(of_host) for _ in range(3))
    with keeping:
        with late:
            pass  # and gives back nothing, since it had nothing
        assert seconds(later.__enter__) >= 0.05


def test_a_turn_is_given_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 0.05)
    of_host = Semaphore(1)
    first, second, third = (Turn(of_host) for _ in range(3))
    with first:
        first.give_back(after=60.0)  # it has not been held for so long
        first.give_back()
    with second:
        assert seconds(third.__enter__) >= 0.05


@pytest.mark.parametrize("modern", [True, False])
def test_a_wait_lasts_as_long_whatever_the_wall_clock_says(modern: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden() -> float:
        raise AssertionError("the wall clock may step")

    monkeypatch.setattr(time, "time", forbidden)
    semaphore = Semaphore(1)
    if modern:
        assert semaphore._wait is not None  # glibc 2.30 and later
    else:
        semaphore._wait = None
    assert semaphore.acquire(0.0)
    assert 0.05 <= seconds(lambda: semaphore.acquire(0.05)) < 5.0
    assert not semaphore.acquire(0.0)
    threading.Timer(0.02, semaphore.release).start()
    assert semaphore.acquire(10.0)


FORKED = """
import os, signal, sys, time
from node.process.forkserver import Forked, ForkServer
from node.process.view import FileView
from node.runtime.turns import Turn

server = ForkServer(FileView("/nowhere"))
server.turns = type(server.turns)(1)
turn, other = Turn(server.turns), Turn(server.turns)
told, tell = os.pipe()
pid = os.fork()
if pid == 0:
    with turn:
        os.write(tell, b"!")
        time.sleep(60)
server.nodes[pid] = Forked("device-0", turn, 1, -1)
os.read(told, 1)
os.kill(pid, getattr(signal, sys.argv[1]))
os.waitid(os.P_PID, pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
server.reap()
began = time.monotonic()
with other:
    print(time.monotonic() - began)
if server.nodes:
    os.kill(pid, signal.SIGKILL)
"""


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGSTOP"])
def test_a_node_that_is_killed_or_stopped_blocks_no_one(signal: str) -> None:
    done = subprocess.run([sys.executable, "-c", FORKED, signal], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.splitlines()[-1]) < PATIENCE / 2


@pytest.mark.skipif(
    tuple(map(int, platform.release().split("-")[0].split(".")[:2])) < (6, 12), reason="Linux 6.12 or later lets it"
)
def test_a_computing_thread_takes_long_turns() -> None:
    def turn() -> float:
        """Seconds, as the scheduler keeps them for this thread: sched_setattr(2), /proc/PID/sched."""
        lines = Path(f"/proc/self/task/{threading.get_native_id()}/sched").read_text().splitlines()
        (slice,) = [line.split()[-1] for line in lines if line.startswith("se.slice")]
        return int(slice) / 1e9

    def changed() -> tuple[float, float]:
        before = turn()
        take_long_turns()
        return before, turn()

    with ThreadPoolExecutor(1) as pool:
        before, after = pool.submit(changed).result()
    assert before < after == TURN
