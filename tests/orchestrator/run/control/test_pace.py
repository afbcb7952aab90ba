from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

import pytest

from node.runtime.clock import VirtualLoop, run_virtual
from orchestrator.run.control.pace import Pacing, speed_of

T = TypeVar("T")


@pytest.mark.parametrize(
    ("pace", "speed"), [("10x", 10.0), ("0.5x", 0.5), ("free", None), ("pause", None), ("step", None)]
)
def test_the_words(pace: str, speed: float | None) -> None:
    assert speed_of(pace) == speed


@pytest.mark.parametrize("pace", ["", "x", "10", "0x", "-1x", "1e3x", "infx", "fast", "10 x", "٣x"])
def test_what_is_no_pace(pace: str) -> None:
    with pytest.raises(ValueError, match="speed like 10x, pause"):
        speed_of(pace)


def on_clock(act: Callable[[VirtualLoop, Pacing], Coroutine[Any, Any, T]]) -> T:
    async def main() -> T:
        loop = cast(VirtualLoop, asyncio.get_running_loop())
        return await act(loop, Pacing(loop))

    return run_virtual(main())


def test_a_step_lasts_until_a_round_starts() -> None:
    async def act(loop: VirtualLoop, pacing: Pacing) -> None:
        pacing.set("4x")
        pacing.set("pause")
        assert (loop.pace.held, loop.pace.rate) == (True, 4.0)
        waiting = pacing.set("step")
        assert (loop.pace.held, loop.pace.rate) == (False, 4.0)
        pacing.round_began(3)
        assert loop.pace.held
        assert waiting is not None
        assert await waiting == 3
        pacing.set("free")
        pacing.round_began(4)
        assert loop.pace.free

    on_clock(act)


@pytest.mark.parametrize("end", ["another pace", "the run ends"])
def test_a_step_may_be_given_up(end: str) -> None:
    async def act(loop: VirtualLoop, pacing: Pacing) -> bool:
        waiting = pacing.set("step")
        if end == "another pace":
            pacing.set("pause")
        else:
            pacing.end()
            assert loop.pace.free
        assert waiting is not None
        return waiting.cancelled()

    assert on_clock(act)
