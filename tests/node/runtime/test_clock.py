from __future__ import annotations

import asyncio
import socket
import time

import pytest

from node.runtime.clock import DeadlockError, run_virtual


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
