from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from netem.profile import LinkProfile
from orchestrator.errors import HostError
from orchestrator.record.events.network import NetworkReading, PairReading
from orchestrator.results.checks.network import network_held
from orchestrator.run.context import RunContext
from orchestrator.run.display.snapshot import View
from orchestrator.run.links.network import NetworkWatch
from tests.orchestrator.agent.stage import spread
from tests.orchestrator.run.nodes.test_session import SCENARIO, Stage
from tests.texts import containing
from tests.virtual import virtual

PAIR = ("a", "b")


class FakeNetwork:
    """A network of these delays, one in each 5 s. Then it cannot be measured any more."""

    def __init__(self, *delays: float | None) -> None:
        self.homes: dict[str, str] = {}
        self.first = NetworkReading((PairReading(PAIR, 0.002),), first=True)
        self._delays = iter(delays)

    async def measure(self) -> NetworkReading:
        await asyncio.sleep(5.0)
        for delay in self._delays:
            return NetworkReading((PairReading(PAIR, delay, 10, 0, delay),))
        raise HostError("no way out", "none")


@virtual
async def test_readings_are_recorded_and_what_they_report_is_shown_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, SCENARIO)
    clock, verdicts = asyncio.get_running_loop().time, []
    view = cast(View, SimpleNamespace(line=stage.lines.append))
    run = RunContext(spread(stage.plan, PAIR), stage.directory, stage.record, clock, view)
    network = FakeNetwork(0.0021, 0.012, 0.012, 0.012, 0.002)
    network.homes = {node.name: node.host for node in run.plan.nodes}
    watch = NetworkWatch(run, stage.session.progress, network)
    began, story = clock(), run.story
    stage.session.spawn(watch.forever())
    for _ in range(6):
        await asyncio.sleep(5.001)
        verdicts.append((network_held(story) or ("", ""))[0])
    assert verdicts == ["pass", "unknown", "fail", "fail", "fail", "fail"]
    (line,) = stage.lines
    assert line == containing("from 10 s on", "between a and b", "12 ms one way, 10 ms more")
    events = stage.events(NetworkReading.NAME)
    assert [round(event.t - began) for event in events] == [0, 5, 10, 15, 20, 25]
    readings = [NetworkReading.from_json(event.data) for event in events]
    assert [reading.pairs[0].delay for reading in readings] == [0.002, 0.0021, 0.012, 0.012, 0.012, 0.002]
    assert [reading.first for reading in readings] == [True] + [False] * 5
    assert "no way out" in str(stage.session.ended.result().error)
    await stage.session.close()
    stage.record.close()


@virtual
async def test_when_nodes_move_the_network_between_their_hosts_is_watched_from_then_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path, SCENARIO)
    view = cast(View, SimpleNamespace(line=stage.lines.append))
    plan = spread(stage.plan, PAIR)
    run = RunContext(plan, stage.directory, stage.record, asyncio.get_running_loop().time, view)
    network = FakeNetwork(0.002, 0.1, 0.002, 0.1, 0.1)
    network.homes = {node.name: node.host for node in plan.nodes}
    stage.session.spawn(NetworkWatch(run, stage.session.progress, network).forever())
    await asyncio.sleep(7)
    network.homes |= dict.fromkeys(network.homes, "a")  # no link crosses hosts any more
    await asyncio.sleep(4)
    readings = [NetworkReading.from_json(event.data) for event in stage.events(NetworkReading.NAME)]
    assert [(reading.first, reading.pairs[0].delay) for reading in readings] == [
        (True, 0.002),
        (False, 0.002),
        (True, 0.002),  # and not 0.1, which was measured while they moved
    ]
    await asyncio.sleep(16)
    assert stage.lines == []  # 98 ms more, and no link of it is concerned
    await stage.session.close()
    stage.record.close()


@virtual
async def test_real_links_are_shown_and_reported_when_they_change_much(tmp_path: Path) -> None:
    stage = Stage(tmp_path, SCENARIO)
    links = tuple(replace(link, profile=LinkProfile(real=True)) for link in stage.plan.links)
    plan, view = (replace(spread(stage.plan, PAIR), links=links), cast(View, SimpleNamespace(line=stage.lines.append)))
    run = RunContext(plan, stage.directory, stage.record, asyncio.get_running_loop().time, view)
    network = FakeNetwork(0.0021, 0.012, 0.013, None)
    network.homes = {node.name: node.host for node in plan.nodes}
    watch = NetworkWatch(run, stage.session.progress, network)
    task = asyncio.create_task(watch.forever())
    shown: list[str] = []
    for _ in range(5):
        await asyncio.sleep(0.001 if not shown else 5.0)
        shown.append(stage.session.progress.real["a – b"])
    assert shown == [f"round trip {trip} ms" for trip in ("4", "4.2", "24", "26")] + ["no echo came back"]
    assert stage.lines == [
        containing("real", f"and b, measured: {said}")
        for said in ("round trip 4 ms", "round trip 24 ms", "no echo came back")
    ]
    assert (network_held(run.story) or ("", ""))[0] == "measured"
    task.cancel()
    await stage.session.close()
    stage.record.close()
