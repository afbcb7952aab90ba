"""Schedules on a virtual clock: against an engine that writes down what it was asked, and in a played session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from netem.library import PROFILES
from netem.media.profile import ChannelProfile
from netem.profile import LinkProfile
from netem.schedules.schedule import Schedule, Step, Steps
from netem.schedules.traces import Trace
from node.runtime.clock import run_virtual
from orchestrator.fabric.base import Fabric
from orchestrator.planning.plan import LinkPlan, MediumPlan, Plan
from orchestrator.record.events.links import ScheduleFailed, ScheduleStep
from orchestrator.results.checks.registry import checks
from orchestrator.results.courses import Course, changes_since, courses
from orchestrator.results.history import History
from orchestrator.run.links.media import Media
from orchestrator.run.links.schedules import MOST_RECORDED_EACH, QUIET, Schedules
from orchestrator.run.links.states import Links
from tests.orchestrator.run.links.test_states import Engine
from tests.orchestrator.run.nodes.test_session import Play, Stage, play
from tests.texts import containing

__all__ = ["play"]  # a fixture

BASE = LinkProfile(latency=0.01, rate=10e6)
STEPS = Steps((Step(at=1.0, settings={"rate": "5mbit"}), Step(at=2.0, interruption=0.5)), repeat=10.0)
SLOW = BASE.merged(rate=5e6)


def link(source: str, target: str, schedule: Schedule | None, profile: LinkProfile = BASE) -> LinkPlan:
    return LinkPlan(source, target, "device-edge", profile, 1, schedule)


def follow(
    links: Sequence[LinkPlan],
    until: float,
    engine: Engine,
    *,
    quiet: bool = False,
    elapsed: float = 0.0,
    media: Sequence[MediumPlan] = (),
) -> tuple[list[Course], list[ScheduleStep | ScheduleFailed]]:
    """Let the schedules run; a node says something every ten seconds, unless ``quiet``."""
    notes: list[ScheduleStep | ScheduleFailed] = []

    async def main() -> list[Course]:
        tasks: list[asyncio.Task[None]] = []

        def spawn(work: Awaitable[None]) -> None:
            tasks.append(asyncio.ensure_future(cast(Any, work)))

        plan = cast(Plan, SimpleNamespace(links=links, media=media))
        schedules = Schedules(
            plan,
            Links(links, cast(Fabric, engine)),
            Media(media, cast(Fabric, engine)),
            notes.append,
            spawn,
        )
        schedules.begin(elapsed)
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            await asyncio.sleep(min(10.0, until - loop.time()))
            if not quiet:
                schedules.message_arrived()
        found = schedules.end()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return found

    return run_virtual(main()), notes


class Channels(Engine):
    """An engine with channels."""

    def __init__(self) -> None:
        super().__init__()
        self.channels: dict[str, ChannelProfile] = {}

    async def share(self, channels: Mapping[str, ChannelProfile]) -> None:
        self.channels |= channels

    async def occupy(self, channel: str, traffic: object, seed: int = 0) -> None:
        raise NotImplementedError

    async def reroute(self, source: str, target: str, crossings: object) -> None:
        raise NotImplementedError


def test_a_channel_follows_its_schedule_and_keeps_the_rates_of_members_below_its_own() -> None:
    schedule = Steps((Step(at=1.0, settings={"rate": "5mbit"}), Step(at=2.0, settings={"rate": "20mbit"})))
    channel = ChannelProfile(20e6, "airtime", 0.2, {"device-0": 10e6})
    cell = MediumPlan("cell", {"cell": channel}, ("device-0",), {"cell": schedule})
    slow = ChannelProfile(5e6, "airtime", 0.2, {"device-0": 5e6})
    sized = replace(cell, channels={"cell": replace(channel, size=50_000)})
    fabric = Channels()
    follow([], 1.5, fabric, media=[sized])
    assert fabric.channels == {"cell": replace(slow, size=50_000)}
    for until, changes, wanted in ((1.5, 1, slow), (2.5, 2, channel)):
        fabric = Channels()
        (course,), notes = follow([], until, fabric, media=[cell])
        assert (course.name, course.channel, course.changes, course.failures) == ("cell", "cell", changes, 0)
        assert fabric.channels == {"cell": wanted}
        assert isinstance(notes[0], ScheduleStep)
        assert notes[0].became == "5mbit, buffer 200ms"


def test_each_change_is_made_at_its_time() -> None:
    engine = Engine()
    (course,), notes = follow([link("a", "b", STEPS)], 12.25, engine)
    assert engine.done == [
        (1.0, ("change", "a", "b", SLOW)),
        (2.0, ("cut", "a", "b")),
        (2.5, ("restore", "a", "b")),
        (10.0, ("change", "a", "b", BASE)),
        (11.0, ("change", "a", "b", SLOW)),
        (12.0, ("cut", "a", "b")),
    ]
    assert (course.changes, course.overtaken, course.failures, course.lateness.maximum) == (6, 0, 0, 0.0)
    assert notes[0] == ScheduleStep("a → b", at=1.0, late=0.0, became="10ms, 5mbit")
    assert isinstance(notes[1], ScheduleStep)
    assert notes[1].became == "cut"


def test_a_run_that_is_continued_follows_from_where_it_was() -> None:
    """After 11.5 s of training the second period's step has been made; its cut is due half a second later."""
    engine = Engine()
    (course,), _ = follow([link("a", "b", STEPS)], 2.0, engine, elapsed=11.5)
    assert engine.done == [(0.0, ("change", "a", "b", SLOW)), (0.5, ("cut", "a", "b")), (1.0, ("restore", "a", "b"))]
    assert (course.changes, course.overtaken, course.lateness.maximum) == (3, 0, 0.0)


def test_of_a_schedule_that_is_over_its_last_word_holds() -> None:
    once = Steps((Step(at=1.0, settings={"rate": "5mbit"}),))
    (held,) = changes_since(60.0, once.changes(BASE))
    assert (held.at, held.profile) == (60.0, SLOW)


def test_links_that_are_alike_follow_together() -> None:
    other = Steps((Step(at=1.0, settings={"rate": "5mbit"}),))
    found = courses(
        [
            link("a", "b", STEPS),
            link("c", "d", None),
            link("e", "f", STEPS),
            link("g", "h", STEPS, LinkProfile(rate=1e6)),
            link("i", "j", other),
        ]
    )
    assert [course.pairs for course in found] == [(("a", "b"), ("e", "f")), (("g", "h"),), (("i", "j"),)]
    assert [course.name for course in found] == ["device-edge: a → b and 1 more", "g → h", "i → j"]


def test_lateness_is_measured_where_the_engine_is_slow() -> None:
    (course,), _ = follow([link("a", "b", STEPS), link("c", "d", STEPS)], 5.0, Engine(takes=0.03))
    assert course.changes == 3
    assert course.lateness.maximum == 0.03  # the two links at the same time
    assert course.overtaken == 0


def test_what_a_later_change_has_overtaken_is_left_out() -> None:
    # Changes every 100 ms take the engine 250 ms: made are those of 0 and then the latest that is due.
    steps = Steps((Step(at=0.0, over=1.0, start={"rate": "11mbit"}, settings={"rate": "1mbit"}),))
    engine = Engine(takes=0.25)
    (course,), _ = follow([link("a", "b", steps)], 3.0, engine)
    rates = [arguments[3].rate / 1e6 for _, arguments in engine.done]
    assert rates == [11, 9, 6, 4, 1]  # asked at 0, 0.2, 0.5, 0.7, 1.0
    assert (course.changes, course.overtaken) == (5, 6)


def test_failures_are_counted_and_reported_and_the_schedule_continues() -> None:
    engine = Engine()
    engine.broken = {"cut"}
    (course,), notes = follow([link("a", "b", STEPS)], 5.0, engine)
    assert course.failures == 1
    failed = [note for note in notes if isinstance(note, ScheduleFailed)]
    assert failed == [ScheduleFailed("a → b", at=2.0, error="cut: no")]
    assert course.changes == 3


def test_thousands_of_changes_are_summed_up() -> None:
    trace = Trace.read("5\n50\n70\n130\n200\n", "t", window=0.05)
    (course,), notes = follow([link("a", "b", trace)], 100.0, Engine())
    assert course.changes > 900
    assert len(notes) == MOST_RECORDED_EACH


def test_where_no_node_says_anything_any_more_time_ends() -> None:
    engine = Engine()
    follow([link("a", "b", STEPS)], 10 * QUIET, engine, quiet=True)
    assert QUIET - 10 < engine.done[-1][0] <= QUIET + 10


SCENARIO = """\
name: played
algorithm: {name: hierfavg, rounds: 5}
topology: {edges: 1, devices_per_edge: 2}
links:
  device-edge: {latency: 10ms, schedule: {steps: [{at: 10s, rate: 5mbit}, {at: 20s, loss: 5%}]}}
  device-0-1 <-> edge-0: {schedule: {handover: [{at: 12s, interruption: 4s, profile: 5g}]}}
faults:
  - {at: 13s, node: device-0-1, action: disconnect, for: 10s}
  - {at: 15s, node: device-0-0, action: degrade, latency: 100ms, for: 10s}
"""


def test_in_a_run_schedules_and_faults_go_together(play: Play) -> None:
    engine = Engine()

    async def act(stage: Stage) -> None:
        stage.fabric.__dict__ |= {verb: getattr(engine, verb) for verb in ("cut", "restore", "change")}
        await stage.train()
        stage.record.event(asyncio.get_running_loop().time(), None, "training", None, {})
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(30.0)
        done = [(round(t - began, 6), arguments) for t, arguments in engine.done]
        assert [(t, verb, *rest) for t, (verb, source, target, *rest) in done if source == "device-0-1"] == [
            (12.0, "cut"),
            (12.0, "change", PROFILES["5g-up"]),
            # The disconnect of 13 s to 23 s holds the link cut after the handover's end at 16 s.
            (23.0, "restore"),
        ]
        assert [(t, *rest) for t, (verb, source, target, *rest) in done if source == "device-0-0"] == [
            (10.0, LinkProfile(latency=0.01, rate=5e6)),
            (15.0, LinkProfile(latency=0.1, rate=5e6)),
            (20.0, LinkProfile(latency=0.1, rate=5e6, loss=0.05)),
            (25.0, LinkProfile(latency=0.01, rate=5e6, loss=0.05)),
        ]
        for course in stage.session.schedules.end():
            stage.record.add_event(40.0, course.ended())
        (stage.directory.path / "plan.json").write_text(json.dumps(stage.plan.to_json()))
        stage.record.flush()
        with History.open(stage.directory.path) as history:
            found = {check["name"]: (check["verdict"], check["detail"]) for check in checks(history)}
        made = containing("6 changes", "4 link directions, 99%", "most 0 s")
        assert found["links over time"] == ("pass", made)

    play(act, SCENARIO)
