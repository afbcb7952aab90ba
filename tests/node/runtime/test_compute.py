from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from node.assignment import Hardware
from node.runtime.compute import WorkerCompute, is_overrun, stretched
from node.runtime.turns import PATIENCE, TURN, Semaphore, Turn


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


async def test_preparation_runs_in_the_thread_of_the_steps_and_is_not_stretched() -> None:
    compute, threads, began = WorkerCompute(Hardware(speed=0.001), Notes()), list[int](), time.monotonic()
    await compute.prepare(lambda: threads.append(threading.get_ident()))
    await compute.prepare(burn, 0.05)
    assert time.monotonic() - began < 25
    assert await compute.run(threading.get_ident, (), 0, "other") == threads[0]
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


async def test_a_host_too_busy_is_reported() -> None:
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


async def test_a_long_step_does_not_keep_others_from_computing() -> None:
    turns = Semaphore(1)
    compute, other = WorkerCompute(Hardware(), Notes(), Turn(turns)), Turn(turns)
    begun, may_end = threading.Event(), threading.Event()

    def step() -> None:
        begun.set()
        may_end.wait()

    step_under_way = asyncio.create_task(compute.run(step, (), 0, "train"))
    await asyncio.to_thread(begun.wait)
    began = time.monotonic()
    await asyncio.to_thread(other.__enter__)
    assert TURN / 2 < time.monotonic() - began < PATIENCE
    may_end.set()
    await step_under_way
    compute.close()
