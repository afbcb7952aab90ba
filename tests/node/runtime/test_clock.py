from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from typing import cast

import pytest

from node.messaging.delivery.arrivals import Arrivals
from node.runtime.clock import MOST_BEHIND, DeadlockError, Pace, VirtualLoop, run_virtual


class Arrival:
    plan = 0

    def __init__(self, done: asyncio.Event) -> None:
        self.arrive = done.set


def test_time_jumps_to_the_next_timer() -> None:
    seen: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((name, asyncio.get_running_loop().time()))

    async def main() -> None:
        await asyncio.gather(sleeper("hour", 3600.0), sleeper("minute", 60.0), sleeper("day", 86400.0))

    started = time.perf_counter()
    run_virtual(main())
    assert seen == [("minute", 60.0), ("hour", 3600.0), ("day", 86400.0)]
    assert time.perf_counter() - started < 5.0


@pytest.mark.parametrize("start", [2.0**23, 2.0**24, 1e10])
def test_time_continues_after_years(start: float) -> None:
    """From 2²⁴ s on, a time and 1e-9 s later are the same float."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(start)
        arrivals = Arrivals()
        done = asyncio.Event()
        arrivals.add(start + 0.25, Arrival(done))
        await done.wait()
        assert loop.time() == start + 0.25
        await asyncio.sleep(1e-12)
        await asyncio.sleep(0.5)
        assert loop.time() == start + 0.75

    run_virtual(main())


def test_a_timeout_expires_on_the_virtual_clock() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30.0):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 30.0


def test_a_thread_takes_no_virtual_time() -> None:
    def work() -> str:
        time.sleep(0.05)
        return "done"

    async def main() -> tuple[str, float, float]:
        loop = asyncio.get_running_loop()
        ticks = asyncio.create_task(asyncio.sleep(3600.0))
        done = await asyncio.to_thread(work)
        after = loop.time()
        await ticks
        return done, after, loop.time()

    assert run_virtual(main()) == ("done", 0.0, 3600.0)


def test_what_a_thread_raises_is_raised_where_it_is_awaited() -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)

    run_virtual(main())


def test_a_descriptor_that_is_ready_moves_no_time() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        with here, there:
            heard = asyncio.Event()
            loop.add_reader(here, heard.set)
            there.send(b"x")
            asyncio.get_running_loop().call_later(1.0, heard.set)
            await heard.wait()
            loop.remove_reader(here)
        return loop.time()

    assert run_virtual(main()) == 0.0


def test_a_deadlock_names_who_waits() -> None:
    async def wait_for_nobody() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.create_task(wait_for_nobody(), name="edge-0")

    with pytest.raises(DeadlockError, match="edge-0 waits in"):
        run_virtual(main())


class Host:
    """A host's clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_pace_in_numbers() -> None:
    host = Host()
    pace = Pace(host)
    assert pace.free
    assert pace.wait(50.0) == 0.0
    pace.set(10.0, 5.0)  # 5 virtual seconds in each second, from 10 on: 12.5 is due after half a second
    assert not pace.free
    assert pace.wait(12.5) == pytest.approx(0.5)
    host.now += 0.2
    assert pace.present() == pytest.approx(11.0)
    assert pace.wait(12.5) == pytest.approx(0.3)
    host.now += 0.3
    pace.reach(12.5)
    assert pace.wait(17.5) == pytest.approx(1.0)
    pace.set(14.0, 5.0, held=True)
    assert pace.wait(14.1) is None
    host.now += 9.0
    assert pace.present() == 14.0


def test_a_pace_makes_up_for_little_lateness_only() -> None:
    host = Host()
    pace = Pace(host)
    pace.set(0.0, 1.0)
    host.now += 20.0  # the work for the first virtual second took 20 s
    pace.reach(1.0)
    assert pace.wait(2.0) == pytest.approx(1.0 - MOST_BEHIND)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_pace_is_above_nothing(rate: float) -> None:
    with pytest.raises(ValueError, match="a pace is above 0"):
        Pace().set(0.0, rate)


def test_paced_time_takes_time_and_makes_the_same_jumps() -> None:
    async def jumps(rate: float | None) -> list[float]:
        loop = cast(VirtualLoop, asyncio.get_running_loop())
        loop.set_pace(rate)
        seen = []
        for _ in range(3):
            await asyncio.sleep(0.1)
            seen.append(loop.time())
        return seen

    started = time.perf_counter()
    paced = run_virtual(jumps(3.0))
    assert time.perf_counter() - started >= 0.1
    assert paced == run_virtual(jumps(None))


def test_a_held_clock_receives_what_comes_from_outside_and_is_stalled() -> None:
    async def main() -> tuple[float, float]:
        loop = cast(VirtualLoop, asyncio.get_running_loop())
        heard = loop.create_future()
        sleeper = asyncio.ensure_future(asyncio.sleep(5.0))
        loop.set_pace(None, held=True)
        reading, writing = os.pipe()

        def note() -> None:
            loop.remove_reader(reading)
            heard.set_result(loop.time())

        loop.add_reader(reading, note)
        threading.Timer(0.02, os.write, (writing, b"x")).start()
        at = await heard
        os.close(reading)
        os.close(writing)
        loop.set_pace(None)
        await sleeper
        return at, loop.time()

    assert run_virtual(main()) == (0.0, 5.0)


def test_what_comes_from_outside_may_have_its_own_time() -> None:
    """Half way to the next timer, at the pace, and never beyond it."""

    async def main() -> tuple[float, float]:
        loop = cast(VirtualLoop, asyncio.get_running_loop())
        host = Host()
        loop.pace._host = host
        heard = loop.create_future()
        sleeper = asyncio.ensure_future(asyncio.sleep(3600.0))
        loop.set_pace(10.0)
        reading, writing = os.pipe()

        def read() -> None:
            host.now += 180.0
            loop.catch_up()
            half = loop.time()
            host.now += 1800.0
            loop.catch_up()
            heard.set_result((half, loop.time()))
            loop.remove_reader(reading)

        loop.add_reader(reading, read)
        loop.pace._host = lambda: os.write(writing, b"x") * host.now  # the loop reads it to wait for the timer
        times = cast("tuple[float, float]", await heard)
        loop.pace._host = host
        os.close(reading)
        os.close(writing)
        loop.set_pace(None)
        await sleeper
        return times

    assert run_virtual(main()) == (1800.0, 3600.0)
