"""What every link engine must do: each case takes a `Stage` with an engine that has shaped the links of two devices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from netem.media.profile import ChannelProfile, Crossing, CrossTraffic
from netem.profile import LinkProfile
from orchestrator.errors import FabricError
from orchestrator.fabric.base import ChannelRow, Fabric, LinkChange, LinkRow, NodeHandle, SharesMedia, since
from orchestrator.planning.plan import Plan

__all__ = ["CASES", "OF_MEDIA", "SCENARIO", "Case", "Stage", "share"]

SCENARIO = """\
algorithm: {name: fedavg, rounds: 1}
topology: {edges: 0, devices: 2}
links: {device-cloud: {latency: 10ms, loss: 1%}}
"""
FIRST, SECOND = ("device-0", "cloud"), ("device-1", "cloud")
CELL, OTHER_CELL = "cell-0 up", "cell-1 up"


@dataclass
class Stage:
    """``shown``: the latency in seconds with which the engine carries a link, and whether it is cut. ``refuse``: from
    now on refuse changes of the second link, or no longer; None if the engine can refuse nothing. ``handle``: the
    process of a node. ``crosses``: the way of a link through channels; None if the engine shares no media."""

    fabric: Fabric
    plan: Plan
    shown: Callable[[str, str], tuple[float, bool]]
    refuse: Callable[[bool], None] | None = None
    handle: Callable[[str], NodeHandle] = lambda name: NodeHandle(4713, "a")
    crosses: Callable[[str, str], tuple[Crossing, ...]] | None = None


Case = Callable[[Stage], Coroutine[Any, Any, None]]


async def rows(stage: Stage) -> dict[tuple[str, str], LinkRow]:
    counted = (await stage.fabric.counters()).links
    return {(str(row["source"]), str(row["target"])): row for row in counted}


async def changes_are_made_in_place(stage: Stage) -> None:
    await stage.fabric.change(*FIRST, LinkProfile(latency=0.05))
    assert stage.shown(*FIRST) == (0.05, False)
    assert stage.shown(*SECOND) == (0.01, False)


async def shaping_again_changes_in_place(stage: Stage) -> None:
    await stage.fabric.change(*FIRST, LinkProfile(latency=0.05))
    await stage.fabric.shape(stage.plan.links)
    assert stage.shown(*FIRST) == (0.01, False)


async def a_cut_survives_a_change(stage: Stage) -> None:
    await stage.fabric.cut(*FIRST)
    await stage.fabric.change(*FIRST, LinkProfile(latency=0.07))
    assert stage.shown(*FIRST)[1]
    await stage.fabric.restore(*FIRST)
    assert stage.shown(*FIRST) == (0.07, False)


async def cuts_and_their_ends_may_be_repeated(stage: Stage) -> None:
    for _ in range(2):
        await stage.fabric.cut(*FIRST)
        assert stage.shown(*FIRST)[1]
    for _ in range(2):
        await stage.fabric.restore(*FIRST)
        assert not stage.shown(*FIRST)[1]


async def simultaneous_changes_are_all_made(stage: Stage) -> None:
    cutting = stage.fabric.cut(*FIRST)
    changing = stage.fabric.change(*SECOND, LinkProfile(latency=0.05))
    await asyncio.gather(cutting, changing)
    assert stage.shown(*FIRST)[1]
    assert stage.shown(*SECOND) == (0.05, False)


async def a_refused_change_changes_nothing(stage: Stage) -> None:
    import pytest

    if stage.refuse is None:
        pytest.skip("this engine refuses nothing")
    stage.refuse(True)
    slow = LinkProfile(latency=0.05)
    changes = [LinkChange(*FIRST, slow), LinkChange(*SECOND, slow)]
    errors = await stage.fabric.alter(changes)
    assert [type(error) for error in errors] == [type(None), FabricError]
    with pytest.raises(FabricError):
        await stage.fabric.cut(*SECOND)
    stage.refuse(False)
    assert stage.shown(*FIRST) == (0.05, False)
    assert stage.shown(*SECOND) == (0.01, False)
    await stage.fabric.change(*SECOND, slow)
    assert stage.shown(*SECOND) == (0.05, False)


async def counters_never_fall(stage: Stage) -> None:
    before = await rows(stage)
    assert before.keys() <= {(link.source, link.target) for link in stage.plan.links}
    cut = partial(stage.fabric.cut, *FIRST)
    restore = partial(stage.fabric.restore, *FIRST)
    shape = partial(stage.fabric.shape, stage.plan.links)
    for step in (cut, restore, shape):
        await step()
        after = await rows(stage)
        for ends, row in before.items():
            gained = since(after.get(ends, row), row)
            counts = [value for value in gained.values() if not isinstance(value, str)]
            assert min(counts, default=0) >= 0
        before |= after


async def a_node_may_end_and_come_back(stage: Stage) -> None:
    node = stage.plan.node("device-0")
    await stage.fabric.cut(*FIRST)
    for _ in range(2):
        await stage.fabric.detach(node)
    await stage.fabric.attach(node, stage.handle(node.name))
    assert stage.shown(*FIRST)[1]


async def share(stage: Stage) -> None:
    """Shape the links of the plan; the devices' links to the cloud share a cell, and there is another one."""
    if stage.crosses is None:
        import pytest

        pytest.skip("this engine shares no media")
    assert isinstance(stage.fabric, SharesMedia)
    cell = ChannelProfile(20e6)
    other_cell = ChannelProfile(10e6, "fifo", 0.2)
    await stage.fabric.share({CELL: cell, OTHER_CELL: other_cell})
    links = []
    for link in stage.plan.links:
        crossings: tuple[Crossing, ...] = ()
        if link.target == "cloud":
            crossings = (Crossing(CELL, link.source),)
        links.append(replace(link, crossings=crossings))
    await stage.fabric.shape(links)


async def channels_change_in_place(stage: Stage) -> None:
    assert isinstance(stage.fabric, SharesMedia)
    assert stage.crosses is not None
    await stage.fabric.share({CELL: ChannelProfile(5e6)})
    for source, target in (FIRST, SECOND):
        assert stage.crosses(source, target) == (Crossing(CELL, source),)
        assert stage.shown(source, target) == (0.01, False)


async def a_link_may_be_handed_over(stage: Stage) -> None:
    assert stage.crosses is not None
    other = (Crossing(OTHER_CELL, FIRST[0]),)
    await stage.fabric.cut(*FIRST)
    assert await stage.fabric.alter([LinkChange(*FIRST, crossings=other)]) == [None]
    assert stage.crosses(*FIRST) == other
    assert stage.crosses(*SECOND) == (Crossing(CELL, SECOND[0]),)
    assert stage.shown(*FIRST) == (0.01, True)
    await stage.fabric.change(*FIRST, LinkProfile(latency=0.05))
    assert stage.crosses(*FIRST) == other
    assert await stage.fabric.alter([LinkChange(*FIRST, crossings=())]) == [None]
    assert stage.crosses(*FIRST) == ()


async def cross_traffic_may_be_replaced_and_ended(stage: Stage) -> None:
    assert isinstance(stage.fabric, SharesMedia)
    if stage.fabric.engine == "kernel":
        import pytest

        pytest.skip("the kernel engine has no cross traffic")
    constant = CrossTraffic("constant", 5e6)
    on_off = CrossTraffic("on-off", 5e6, 0.1, 0.2)
    for traffic in (constant, on_off, None, None):
        await stage.fabric.occupy(CELL, traffic, 7)
        before = await _rows_of_cell(stage)
        after = await _rows_of_cell(stage)
        for row, later in zip(before, after, strict=True):
            assert row["member"] == later["member"]
            for key in ("packets", "bytes", "seconds", "overflowed"):
                assert float(later[key]) >= float(row[key])


async def _rows_of_cell(stage: Stage) -> list[ChannelRow]:
    counted = await stage.fabric.counters()
    return [row for row in counted.channels if row["channel"] == CELL]


async def closing_twice_is_closing_once(stage: Stage) -> None:
    await stage.fabric.close()
    await stage.fabric.close()


CASES: list[Case] = [
    changes_are_made_in_place,
    shaping_again_changes_in_place,
    a_cut_survives_a_change,
    cuts_and_their_ends_may_be_repeated,
    simultaneous_changes_are_all_made,
    a_refused_change_changes_nothing,
    counters_never_fall,
    a_node_may_end_and_come_back,
    closing_twice_is_closing_once,
]

OF_MEDIA: list[Case] = [channels_change_in_place, a_link_may_be_handed_over, cross_traffic_may_be_replaced_and_ended]
"""Cases for engines that share media, after `share`."""
