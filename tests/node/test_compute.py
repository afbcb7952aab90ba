from __future__ import annotations

import asyncio
import platform
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from node.assignment import Hardware
from node.compute import TURN, WorkerCompute, is_overrun, stretched, take_long_turns


class Notes:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def event(self, name: str, *, round: int | None = None, **fields: Any) -> None:
        self.events.append((name, fields))

    def metric(self, round: int | None, values: Mapping[str, Any]) -> None: ...


def burn(seconds: float) -> float:
    """Use so much processor time; returns how much it was."""
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass
    return time.thread_time() - began


@pytest.mark.parametrize(
    ("processor", "speed", "slow", "asked"),
    [(2.0, None, 1.0, None), (2.0, 1.0, 1.0, 2.0), (2.0, 0.25, 1.0, 8.0), (2.0, 0.5, 0.5, 8.0), (2.0, None, 0.5, 4.0)],
)
def test_a_step_lasts_as_long_as_the_hardware_needs(
    processor: float, speed: float | None, slow: float, asked: float | None
) -> None:
    assert stretched(processor, speed, slow) == asked


def test_an_overrun_is_beyond_a_tenth_and_the_hosts_own_jitter() -> None:
    assert not is_overrun(1.0, 1.11)
    assert is_overrun(1.0, 1.13)
    assert not is_overrun(0.001, 0.02)


async def test_results_and_errors_come_from_another_thread() -> None:
    compute = WorkerCompute(Hardware(), Notes())
    assert await compute.run(threading.current_thread, (), 0, "other") is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        await compute.run(divmod, (1, 0), 0, "train")
    compute.close()


async def test_a_slow_node_takes_longer_and_a_slowed_one_longer_still() -> None:
    compute = WorkerCompute(Hardware(speed=0.25), Notes())
    loop = asyncio.get_running_loop()
    began = loop.time()
    used = await compute.run(burn, (0.005,), 0, "train")
    assert loop.time() - began >= used / 0.25
    compute.slow = 0.5
    began = loop.time()
    used = await compute.run(burn, (0.005,), 0, "train")
    assert loop.time() - began >= used / 0.125
    compute.close()


async def test_a_host_too_busy_is_told() -> None:
    notes = Notes()
    compute = WorkerCompute(Hardware(speed=1.0), notes)
    idle = threading.Event()
    await compute.run(idle.wait, (0.05,), 0, "evaluate")  # takes time on the clock, none of the processor
    ((name, fields),) = notes.events
    assert name == "overrun"
    assert fields["mode"] == "evaluate"
    assert fields["taken"] >= 0.05 > fields["asked"]
    compute.close()


async def test_a_host_with_its_own_speed_never_overruns() -> None:
    notes = Notes()
    compute = WorkerCompute(Hardware(), notes)
    await compute.run(threading.Event().wait, (0.05,), 0, "train")
    assert notes.events == []
    compute.close()


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
