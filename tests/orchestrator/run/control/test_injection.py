"""Faults on a virtual clock, against powers that write down what they were asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netem.media.profile import ChannelProfile, Crossing, CrossTraffic
from netem.profile import LinkProfile
from node.runtime.clock import run_virtual
from orchestrator.errors import DriverError, FabricError
from orchestrator.fabric.base import Fabric
from orchestrator.planning.faults.timeline import Fault
from orchestrator.planning.plan import CrossTrafficPlan, LinkPlan, MediumPlan, Plan
from orchestrator.record.rows import FaultSpan
from orchestrator.run.control.injection import FaultInjector
from orchestrator.run.links.media import Media
from orchestrator.run.links.states import Links
from orchestrator.run.nodes.processes import NodeProcesses
from orchestrator.run.resume import NOTHING, Past
from tests.virtual import virtual

BASE = LinkProfile(latency=0.01)
LINKS = (LinkPlan("edge-0", "cloud", "edge-cloud", BASE, 1), LinkPlan("cloud", "edge-0", "edge-cloud", BASE, 2))
BOTH = (("edge-0", "cloud"), ("cloud", "edge-0"))


@dataclass
class Diary:
    """Powers that do nothing but remember, with the time; ``absent`` nodes refuse."""

    absent: frozenset[str] = frozenset()
    done: list[tuple[float, str, Any]] = field(default_factory=list)

    def __getattr__(self, verb: str) -> Any:
        async def power(*arguments: Any) -> None:
            if str(arguments[0]) in self.absent:
                raise DriverError(f"{arguments[0]} is not running but crashed")
            self.done.append((asyncio.get_running_loop().time(), verb, arguments))

        return power

    def verbs(self) -> list[tuple[float, str]]:
        return [(t, verb) for t, verb, _ in self.done]


def fault(id: int, action: str, **fields: Any) -> Fault:
    unset: dict[str, Any] = dict.fromkeys(("node", "between", "at", "round", "duration"))
    return Fault(id=id, action=action, **(unset | fields))


def play(
    faults: Sequence[Fault],
    powers: Diary,
    *,
    rounds: Sequence[tuple[float, int]] = (),
    events: Sequence[tuple[float, str]] = (),
    until: float = 100.0,
    past: Past = NOTHING,
    links: Sequence[LinkPlan] = LINKS,
    media: Sequence[MediumPlan] = (),
) -> list[tuple[float, int, str, str]]:
    """Run the faults; ``rounds`` start and ``events`` are reported at these times.

    The notes: time, fault, phase, detail."""
    notes: list[tuple[float, int, str, str]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        plan = cast(Plan, SimpleNamespace(faults=tuple(faults), links=LINKS))
        tasks: list[asyncio.Task[None]] = []
        injector = FaultInjector(
            plan,
            cast(NodeProcesses, powers),
            Links(links, cast(Fabric, powers)),
            Media(media, cast(Fabric, powers)),
            lambda fault, phase, detail: notes.append((loop.time(), fault.id, phase, detail)),
            lambda work: tasks.append(asyncio.ensure_future(work)),
            powers.readdress,
            powers.move,
        )
        injector.begin(past)
        for t, round in rounds:
            await asyncio.sleep(t - loop.time())
            injector.round_started(round)
        for t, event in events:
            await asyncio.sleep(t - loop.time())
            injector.event_reported(event)
        await asyncio.sleep(until - loop.time())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_virtual(main())
    return notes


def test_a_crash_and_its_restart() -> None:
    powers = Diary()
    notes = play([fault(1, "crash", node="device-0-0", at=20.0, duration=15.0)], powers)
    assert powers.verbs() == [(20.0, "crash"), (35.0, "revive")]
    assert notes == [(20.0, 1, "start", ""), (35.0, 1, "end", "")]


def test_without_an_end_a_fault_lasts() -> None:
    powers = Diary()
    play([fault(1, "pause", node="edge-0", at=1.0)], powers)
    assert powers.verbs() == [(1.0, "pause")]


def test_a_fault_that_cannot_be_made_is_skipped_with_the_reason_and_not_undone() -> None:
    powers = Diary(absent=frozenset({"device-0-0"}))
    notes = play([fault(1, "crash", node="device-0-0", at=1.0, duration=1.0)], powers)
    assert notes == [(1.0, 1, "skipped", "device-0-0 is not running but crashed")]
    assert powers.done == []


def test_a_round_fault_with_a_duration_and_one_that_lasts_its_round() -> None:
    powers = Diary()
    faults = [
        fault(1, "disconnect", node="edge-0", round=2, lasts_a_round=True, links=BOTH),
        fault(2, "slow", node="edge-0", round=2, duration=0.5, factor=4.0),
    ]
    notes = play(faults, powers, rounds=[(1.0, 1), (2.0, 2), (5.0, 3)])
    assert [(t, id, phase) for t, id, phase, _ in notes] == [
        (2.0, 1, "start"),
        (2.0, 2, "start"),
        (2.5, 2, "end"),
        (5.0, 1, "end"),
    ]
    assert powers.verbs() == [
        (2.0, "cut"),
        (2.0, "cut"),
        (2.0, "slow"),
        (2.5, "speed_up"),
        (5.0, "restore"),
        (5.0, "restore"),
    ]
    told = [arguments for _, verb, arguments in powers.done if verb in ("slow", "speed_up")]
    assert told == [("edge-0", 2, 4.0), ("edge-0", 2)]


def test_a_fault_begins_with_the_first_event_of_its_name() -> None:
    powers = Diary()
    events = [(1.0, "other"), (3.0, "ready"), (9.0, "ready")]
    play([fault(1, "pause", node="edge-0", event="ready", duration=2.0)], powers, events=events)
    assert powers.verbs() == [(3.0, "pause"), (5.0, "resume")]


def test_a_round_that_starts_again_adds_its_faults_once() -> None:
    powers = Diary()
    play([fault(1, "pause", node="edge-0", round=2)], powers, rounds=[(1.0, 1), (2.0, 2), (3.0, 2), (4.0, 3)])
    assert powers.verbs() == [(2.0, "pause")]


def test_a_round_that_was_jumped_over_still_adds_its_faults() -> None:
    powers = Diary()
    play([fault(1, "pause", node="edge-0", round=2)], powers, rounds=[(1.0, 1), (2.0, 3)])
    assert powers.verbs() == [(2.0, "pause")]


def test_a_link_is_restored_when_the_last_fault_that_cut_it_is_over() -> None:
    # partition from 1 to 5, disconnect from 3 to 8: whole again at 8 and not at 5
    powers = Diary()
    faults = [
        fault(1, "partition", between=(("edge-0",), ("cloud",)), at=1.0, duration=4.0, links=BOTH),
        fault(2, "disconnect", node="edge-0", at=3.0, duration=5.0, links=BOTH),
    ]
    play(faults, powers)
    assert powers.verbs() == [(1.0, "cut"), (1.0, "cut"), (8.0, "restore"), (8.0, "restore")]


def test_overlapping_degradations_add_up_and_come_off_one_by_one() -> None:
    powers = Diary()
    faults = [
        fault(1, "degrade", node="edge-0", at=1.0, duration=4.0, links=BOTH[:1], profile={"loss": "10%"}),
        fault(2, "degrade", node="edge-0", at=2.0, duration=1.0, links=BOTH[:1], profile={"latency": "50ms"}),
    ]
    play(faults, powers)
    assert [(t, arguments[2]) for t, _, arguments in powers.done] == [
        (1.0, LinkProfile(latency=0.01, loss=0.1)),
        (2.0, LinkProfile(latency=0.05, loss=0.1)),
        (3.0, LinkProfile(latency=0.01, loss=0.1)),
        (5.0, BASE),
    ]


def test_a_new_address_has_no_end() -> None:
    powers = Diary()
    notes = play([fault(1, "new-address", node="device-0-0", at=20.0)], powers)
    assert powers.verbs() == [(20.0, "readdress")]
    assert notes == [(20.0, 1, "start", "")]


def test_join_and_leave() -> None:
    powers = Diary()
    play([fault(1, "join", node="device-0-0", at=1.0), fault(2, "leave", node="device-0-1", at=2.0)], powers)
    assert powers.verbs() == [(1.0, "join"), (2.0, "leave")]


def span(
    id: int,
    action: str,
    *,
    start: float | None = None,
    end: float | None = None,
    skipped: float | None = None,
    node: str = "edge-0",
) -> FaultSpan:
    return FaultSpan(id, action, node, start, end, skipped, None, "", (node,), {})


def test_what_a_continued_run_has_behind_it() -> None:
    """The run's clock shows 20 s, of which it has trained for 15; round 4 was going on."""
    powers = Diary()
    faults = [
        fault(1, "crash", node="a", at=1.0, duration=2.0),  # over
        fault(2, "crash", node="b", at=1.0, duration=2.0),  # could not be made
        fault(3, "pause", node="c", at=10.0, duration=8.0),  # on since 15 s: 3 s of it are left
        fault(4, "slow", node="d", at=10.0, factor=3.0),  # on, for good
        fault(5, "pause", node="e", at=16.0),  # a second after the end
        fault(6, "pause", node="f", at=14.5),  # was due, and had not been made
        fault(7, "disconnect", node="g", round=4, lasts_a_round=True, links=BOTH),  # on until round 5
        fault(8, "pause", node="h", round=4),  # its round had just begun
        fault(9, "pause", node="i", round=5),  # still to come
        fault(10, "leave", node="j", at=1.0),  # has left: nothing to do again
        fault(11, "pause", node="k", round=3, duration=1.0),  # over
        fault(12, "pause", node="l", round=4, lasts_a_round=True),  # its round had just begun, and ends it
    ]
    spans = (
        *(span(1, "crash", start=6.0, end=8.0), span(2, "crash", skipped=6.0), span(3, "pause", start=15.0)),
        *(span(4, "slow", start=15.0), span(7, "disconnect", start=19.0), span(10, "leave", start=6.0)),
        span(11, "pause", start=16.0, end=17.0),
    )
    past = Past(seconds=20.0, training=15.0, round=4, kept=(3,), faults=spans, ended="killed")
    notes = play(faults, powers, rounds=[(1.0, 4), (7.0, 5)], past=past)
    assert sorted((t, verb, arguments[0]) for t, verb, arguments in powers.done) == [
        *((0.0, "cut", "cloud"), (0.0, "cut", "edge-0"), (0.0, "pause", "c"), (0.0, "pause", "f"), (0.0, "pause", "h")),
        *((0.0, "pause", "l"), (0.0, "slow", "d"), (1.0, "pause", "e"), (3.0, "resume", "c")),
        *((7.0, "pause", "i"), (7.0, "restore", "cloud"), (7.0, "restore", "edge-0"), (7.0, "resume", "l")),
    ]
    assert sorted((t, id, phase) for t, id, phase, _ in notes) == [
        *((0.0, 6, "start"), (0.0, 8, "start"), (0.0, 12, "start"), (1.0, 5, "start"), (3.0, 3, "end")),
        *((7.0, 7, "end"), (7.0, 9, "start"), (7.0, 12, "end")),
    ]


def test_a_fault_that_cannot_be_made_again_is_over() -> None:
    powers = Diary(absent=frozenset({"edge-0"}))
    past = Past(seconds=5.0, training=5.0, faults=(span(1, "pause", start=2.0),))
    notes = play([fault(1, "pause", node="edge-0", at=2.0, duration=9.0)], powers, past=past)
    assert notes == [(0.0, 1, "end", "edge-0 is not running but crashed")]


@virtual
async def test_a_manual_fault_is_made_at_once_and_ends() -> None:
    powers, notes = Diary(absent=frozenset({"device-9"})), list[tuple[float, int, str]]()
    loop = asyncio.get_running_loop()
    plan = cast(Plan, SimpleNamespace(faults=(fault(3, "pause", node="edge-0", at=50.0),), links=LINKS))
    tasks: list[asyncio.Task[None]] = []
    injector = FaultInjector(
        plan,
        cast(NodeProcesses, powers),
        Links(LINKS, cast(Fabric, powers)),
        Media((), cast(Fabric, powers)),
        lambda fault, phase, detail: notes.append((loop.time(), fault.id, phase)),
        lambda work: tasks.append(asyncio.ensure_future(work)),
        powers.readdress,
        powers.move,
    )
    injector.begin()
    await asyncio.sleep(2.0)
    assert next(injector.ids) == 4
    await injector.make(
        fault(4, "crash", node="device-0-0", at=2.0, duration=3.0), lambda: notes.append((0, 4, "made"))
    )
    with pytest.raises(DriverError, match="not running"):
        await injector.make(fault(5, "crash", node="device-9", at=2.0), lambda: notes.append((0, 5, "made")))
    await asyncio.gather(*tasks)
    assert notes == [(0, 4, "made"), (2.0, 4, "start"), (5.0, 4, "end"), (50.0, 3, "start")]
    assert powers.verbs() == [(2.0, "crash"), (5.0, "revive"), (50.0, "pause")]


def test_a_continued_run_continues_with_a_manual_fault() -> None:
    """It was made at 10 s for 20 s, and the run was interrupted at 16 s: 14 s are left."""
    powers = Diary()
    made = fault(7, "disconnect", node="edge-0", at=10.0, duration=20.0, links=BOTH)
    written = json.loads(json.dumps(asdict(made)))
    span = FaultSpan(7, "disconnect", "edge-0", 10.0, None, None, 2, "", ("edge-0",), written, by="ada")
    notes = play([], powers, past=Past(seconds=16.0, training=16.0, round=2, faults=(span,)))
    assert notes == [(14.0, 7, "end", "")]
    assert powers.verbs() == [(0.0, "cut"), (0.0, "cut"), (14.0, "restore"), (14.0, "restore")]


CELLS = (
    MediumPlan("cell-0", {"cell-0": ChannelProfile(10e6)}, ("device-0",)),
    MediumPlan("cell-1", {"cell-1": ChannelProfile(20e6)}, ()),
)
IN_CELL_0, IN_CELL_1 = (Crossing("cell-0", "device-0"),), (Crossing("cell-1", "device-0"),)
SHARING = (LinkPlan("device-0", "edge-0", "device-edge", BASE, 1, crossings=IN_CELL_0), *LINKS)


def on_medium(id: int, action: str, at: float, duration: float, values: dict[str, Any]) -> Fault:
    return fault(id, action, at=at, duration=duration, medium="cell-0", channels={"cell-0": values})


def play_on_media(*faults: Fault) -> list[tuple[float, str, Any]]:
    powers = Diary()
    play(faults, powers, links=SHARING, media=CELLS)
    return powers.done


def test_degrades_of_a_medium_overlap() -> None:
    faults = [
        on_medium(1, "degrade", 1.0, 4.0, {"rate": 5e6, "buffer": 0.3}),
        on_medium(2, "degrade", 2.0, 1.0, {"rate": 1e6}),
    ]
    assert play_on_media(*faults) == [
        (1.0, "share", ({"cell-0": ChannelProfile(5e6, buffer=0.3)},)),
        (2.0, "share", ({"cell-0": ChannelProfile(1e6, buffer=0.3)},)),
        (3.0, "share", ({"cell-0": ChannelProfile(5e6, buffer=0.3)},)),
        (5.0, "share", ({"cell-0": ChannelProfile(10e6)},)),
    ]


def test_a_medium_that_is_disconnected_cuts_the_links_that_cross_it() -> None:
    faults = [on_medium(1, "disconnect", 1.0, 2.0, {})]
    link = "device-0", "edge-0"
    assert play_on_media(*faults) == [(1.0, "cut", link), (3.0, "restore", link)]


def test_a_handover_out_of_a_disconnected_medium_ends_the_cut_and_its_end_cuts_again() -> None:
    ways = (("device-0", "edge-0", IN_CELL_1),)
    handover = fault(2, "handover", node="device-0", at=2.0, duration=1.0, to="cell-1", crossings=ways)
    link = "device-0", "edge-0"
    assert play_on_media(on_medium(1, "disconnect", 1.0, 4.0, {}), handover) == [
        (1.0, "cut", link),
        (2.0, "reroute", (*link, IN_CELL_1)),
        (2.0, "restore", link),
        (3.0, "cut", link),
        (3.0, "reroute", (*link, IN_CELL_0)),
        (5.0, "restore", link),
    ]


class Channels:
    """An engine with channels that gives one after the other its profile; ``cell-1`` refuses another than its own."""

    engine = "kernel"

    def __init__(self) -> None:
        self.profiles: dict[str, ChannelProfile] = {}

    async def share(self, channels: Mapping[str, ChannelProfile]) -> None:
        for name, profile in channels.items():
            if self.profiles.setdefault("cell-1", profile) != profile and name == "cell-1":
                raise FabricError("cell-1: no")
            self.profiles[name] = profile

    async def occupy(self, channel: str, traffic: CrossTraffic | None, seed: int = 0) -> None: ...

    async def reroute(self, source: str, target: str, crossings: tuple[Crossing, ...]) -> None: ...


async def test_a_degrade_that_one_channel_refuses_leaves_the_others_as_they_were() -> None:
    engine = Channels()
    media = Media(CELLS[::-1], cast(Fabric, engine))
    await media.open()
    before = dict(engine.profiles)
    with pytest.raises(FabricError, match="cell-1: no"):
        await media.overlay({"cell-0": {"rate": 1e6}, "cell-1": {"rate": 1e6}}, 1)
    assert engine.profiles == before == {name: media.of(name) for name in before}
    with pytest.raises(FabricError, match="cell-1: no"):
        await media.follow("cell-1", LinkProfile(rate=1e6))
    assert media.of("cell-1") == before["cell-1"]


def test_of_two_handovers_the_later_one_continues() -> None:
    link = "device-0", "edge-0"

    def handover(id: int, at: float, duration: float | None, *way: Crossing) -> Fault:
        return fault(id, "handover", node="device-0", at=at, duration=duration, crossings=((*link, way),))

    assert play_on_media(handover(1, 1.0, 2.0, *IN_CELL_1), handover(2, 2.0, None)) == [
        (1.0, "reroute", (*link, IN_CELL_1)),
        (2.0, "reroute", (*link, ())),
    ]


def test_cross_traffic_keeps_its_times_after_a_resume() -> None:
    powers, notes, traffic = Diary(), list[tuple[float, str]](), CrossTraffic("constant", 3e6)

    async def main() -> None:
        media = Media(CELLS, cast(Fabric, powers))
        note = lambda event: notes.append((asyncio.get_running_loop().time(), event.phase))  # noqa: E731
        over, going, coming = (CrossTrafficPlan("cell-0", traffic, at, 10.0, 7) for at in (0.0, 5.0, 20.0))
        await asyncio.gather(*(media.carry(each, 12.0, note) for each in (over, going, coming)))

    run_virtual(main())
    assert notes == [(0.0, "start"), (3.0, "end"), (8.0, "start"), (18.0, "end")]
    assert [arguments for _, _, arguments in powers.done[:2]] == [("cell-0", traffic, 7), ("cell-0", None)]


def test_the_end_of_cross_traffic_leaves_the_next_one_alone() -> None:
    powers, first, next_one = Diary(), CrossTraffic("constant", 1e6), CrossTraffic("constant", 4e6)

    async def main() -> None:
        media = Media(CELLS, cast(Fabric, powers))
        later = CrossTrafficPlan("cell-0", next_one, 2.0, None, 7)
        await asyncio.gather(
            *(
                media.carry(each, 0.0, lambda _: None)
                for each in (later, CrossTrafficPlan("cell-0", first, 0.0, 2.0, 7))
            )
        )

    run_virtual(main())
    assert [arguments[1] for _, _, arguments in powers.done][-1] == next_one


def test_faults_of_one_time_keep_their_order() -> None:
    powers = Diary()
    play([fault(number, "pause", node=f"n{number}", at=5.0) for number in range(1, 9)], powers)
    assert [arguments[0] for _, _, arguments in powers.done] == [f"n{number}" for number in range(1, 9)]


def test_faults_of_a_continued_run_keep_the_order_of_their_starts() -> None:
    link = "device-0", "edge-0"

    def handover(id: int, *way: Crossing, **when: Any) -> Fault:
        return fault(id, "handover", node="device-0", crossings=((*link, way),), **when)

    faults = [handover(1, at=2.0), handover(2, *IN_CELL_1, round=1)]
    spans = span(1, "handover", start=2.0), span(2, "handover", start=0.5)
    powers = Diary()
    past = Past(seconds=5.0, training=5.0, round=2, faults=spans)
    play(faults, powers, past=past, links=SHARING, media=CELLS)
    assert powers.done[-1][2] == (*link, ())
