"""A device that moves to another edge, in a run that is played on a virtual clock."""

from __future__ import annotations

import asyncio
import json

from orchestrator.record.rows import FaultSpan
from orchestrator.run.resume import Past
from tests.orchestrator.run.nodes.test_session import Stage, play, played

__all__ = ["play"]  # a fixture

SCENARIO = """\
name: played
algorithm: {name: hierfavg, rounds: 5}
topology: {edges: 2, devices_per_edge: 2}
faults:
  - {at: 5s, node: device-0-1, action: move, to: edge-1}
  - {at: 50s, node: device-0-1, action: move, to: edge-1}
"""
ELSEWHERE = {("device-0-1", "edge-1"), ("edge-1", "device-0-1")}
FORMER = {("device-0-1", "edge-0"), ("edge-0", "device-0-1")}


@played(SCENARIO)
async def test_it_ends_in_order_and_starts_again_at_the_other_edge(stage: Stage) -> None:
    await stage.session.moves.begin()
    assert stage.fabric.cut_links == ELSEWHERE
    await stage.train()
    await asyncio.sleep(6.0)
    assert ("device-0-1", "leave") in stage.control.sent
    stage.driver.end("device-0-1", 0)
    await asyncio.sleep(1.0)
    assert stage.fabric.cut_links == ELSEWHERE  # its goodbye is on its way
    stage.control.say("edge-0", "event", name="left", peer="device-0-1")
    await asyncio.sleep(1.0)
    assert stage.fabric.cut_links == FORMER
    assert stage.states("device-0-1")[2:] == ["running", "restarting", "starting", "registered", "running"]
    peers = json.loads(stage.driver.assignments["device-0-1"] or "")["peers"]
    assert {peer["name"]: peer["relation"] for peer in peers} == {"edge-0": "elsewhere", "edge-1": "parent"}
    (event,) = stage.events("new edge")
    assert event.data == {"node": "device-0-1", "from": "edge-0", "to": "edge-1"}


@played(SCENARIO)
async def test_an_edge_that_receives_no_goodbye_holds_nothing_up(stage: Stage) -> None:
    await stage.session.moves.begin()
    await stage.train()
    await asyncio.sleep(6.0)
    stage.driver.end("device-0-1", 0)
    await asyncio.sleep(20.0)
    assert stage.fabric.cut_links == FORMER
    assert stage.states("device-0-1")[-1] == "running"
    await asyncio.sleep(40.0)
    first, second = stage.story.faults()
    assert (first.start is not None, second.detail) == (True, "device-0-1 is at edge-1 already")


@played(
    SCENARIO.replace(
        "50s, node: device-0-1, action: move, to: edge-1", "50s, node: device-0-1, action: move, to: edge-0"
    )
)
async def test_a_device_of_a_continued_run_starts_where_it_was(stage: Stage) -> None:
    moves = [
        FaultSpan(number, "move", "device-0-1", start, None, None, None, "", ("device-0-1",), {})
        for number, start in ((1, 5.0), (2, None))
    ]
    await stage.session.moves.begin(Past(faults=tuple(moves)))
    assert stage.fabric.cut_links == FORMER == set(stage.session.moves.elsewhere or ())
    await stage.train()
    peers = json.loads(stage.driver.assignments["device-0-1"] or "")["peers"]
    assert {peer["name"]: peer["relation"] for peer in peers} == {"edge-0": "elsewhere", "edge-1": "parent"}
