from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from node.assignment import Hardware
from node.runtime.clock import VirtualLoop
from node.runtime.compute import Mode, WorkerCompute, is_overrun, stretched
from node.runtime.turns import PATIENCE, TURN, Semaphore, Turn
from tests.virtual import virtual


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


def a_second_for_each_sample(samples: int, mode: Mode) -> float:
    return samples * {"train": 1.0, "classifier": 0.5, "evaluate": 0.25, "other": 0.0}[mode]


@virtual
@pytest.mark.parametrize(
    ("speed", "slow", "mode", "seconds"),
    [
        (None, 1.0, "train", 3.0),
        (1.0, 1.0, "evaluate", 0.75),
        (0.25, 1.0, "train", 12.0),
        (0.25, 0.5, "train", 24.0),
        (None, 0.5, "classifier", 3.0),
        (2.0, 1.0, "other", 0.0),
    ],
)
async def test_a_step_with_a_known_cost_takes_its_time(
    speed: float | None, slow: float, mode: Mode, seconds: float
) -> None:
    """Three samples: their seconds, divided by the speed and the factor of a fault."""
    notes = Notes()
    compute = WorkerCompute(Hardware(speed=speed), notes)
    compute.cost = a_second_for_each_sample
    compute.slow = slow
    loop = asyncio.get_running_loop()
    assert await compute.run(divmod, (7, 2), 3, mode) == (3, 1)
    assert loop.time() == pytest.approx(seconds)
    assert notes.events == []
    compute.close()


@virtual
async def test_a_fault_that_slows_a_node_counts_from_the_next_step_with_a_known_cost() -> None:
    compute = WorkerCompute(Hardware(), Notes())
    compute.cost = a_second_for_each_sample
    loop = asyncio.get_running_loop()
    await compute.run(divmod, (7, 2), 3, "train")
    compute.slow = 0.5
    await compute.run(divmod, (7, 2), 3, "train")
    assert loop.time() == pytest.approx(3.0 + 6.0)
    compute.close()


@virtual
async def test_the_time_of_a_frozen_process_does_not_count() -> None:
    """It is frozen from 0.505 s to 10.505 s, in the slice that would end at 0.52 s: 0.48 s are left after it."""
    compute = WorkerCompute(Hardware(), Notes())
    compute.cost = a_second_for_each_sample
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)

    def freeze() -> None:
        loop._jumping.now += 10.0

    loop.call_at(0.505, freeze)
    await compute.run(divmod, (7, 2), 1, "train")
    assert loop.time() == pytest.approx(10.505 + 0.48)
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
