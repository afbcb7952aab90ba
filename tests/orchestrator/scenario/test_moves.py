"""Devices that move to another edge: the links and relations of the plan, and what refuses a move."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.planning.assignments import assignments
from orchestrator.planning.faults.manual import faults_by_hand
from orchestrator.planning.keys import RunKeys
from orchestrator.planning.making import make_plan
from orchestrator.record.directory import RunDirectory
from orchestrator.run.links.link_measurement import one_of_each_kind
from orchestrator.scenario.reading import parse
from tests.texts import containing

MOVE = "faults:\n  - {round: 2, node: device-0-1, action: move, to: edge-1}\n"
TEXT = f"""\
algorithm: {{name: hierfavg, rounds: 4}}
topology: {{edges: 2, devices_per_edge: 2}}
links: {{device-edge: {{latency: 5ms}}, device-0-1 <-> edge-1: {{latency: 9ms}}}}
{MOVE}"""


def problems(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse(text, "f.yaml", overrides)
    return [f"{found.path}: {found.message}" for found in caught.value.problems]


def test_a_device_has_a_link_to_the_edge_that_it_moves_to() -> None:
    plan = make_plan(parse(TEXT, "f.yaml"), None)
    waiting = [(link.source, link.target, link.link_class, link.profile.latency) for link in plan.links if link.waits]
    assert waiting == [
        ("device-0-1", "edge-1", "device-edge", 0.009),
        ("edge-1", "device-0-1", "device-edge", 0.009),
    ]
    assert (plan.node("device-0-1").parent, plan.node("device-0-1").visits) == ("edge-0", ("edge-1",))
    assert (plan.node("edge-1").children, plan.node("edge-1").visits) == (
        ("device-1-0", "device-1-1"),
        ("device-0-1",),
    )
    assert plan.node("edge-0").visits == ()


def test_a_link_that_waits_is_not_measured() -> None:
    plan = make_plan(parse(TEXT, "f.yaml"), None)
    measured = one_of_each_kind(plan, [node.name for node in plan.nodes])
    pairs = [{pair.source.name, pair.target.name} for pair in measured]
    assert len(pairs) == 2  # of device-edge and of edge-cloud
    assert {"device-0-1", "edge-1"} not in pairs


def test_each_side_knows_the_other_from_the_start_and_waits_for_it_at_no_time() -> None:
    plan = make_plan(parse(TEXT, "f.yaml"), None)
    told = assignments(plan, RunDirectory(Path("/runs/a")), RunKeys.none(), "")
    assert {peer.name: peer.away for peer in told["edge-1"].peers if peer.relation == "child"} == {
        "device-1-0": False,
        "device-1-1": False,
        "device-0-1": True,
    }
    assert told["device-0-1"].related("elsewhere") == ("edge-1",)


def test_a_direction_covers_links_to_both_edges() -> None:
    both = MOVE + "  - {at: 9s, node: device-0-1, action: disconnect, direction: up}\n"
    plan = make_plan(parse(TEXT.replace(MOVE, both), "f.yaml"), None)
    (cut,) = [fault for fault in plan.faults if fault.action == "disconnect"]
    assert set(cut.links) == {("device-0-1", "edge-0"), ("device-0-1", "edge-1")}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "algorithm.name=phe-fl",
            "faults.0.action: an edge of phe-fl keeps",
        ),
        (
            "algorithm.participation=0.5",
            "faults.0.action: with participation below 1, edges",
        ),
        (
            "driver=swarm",
            "faults.0.action: the driver swarm moves no",
        ),
        (
            "shared={cell: {rate: 20mbit, members: [device-0-0]}}",
            "faults.0.action: in a run with shared",
        ),
    ],
)
def test_what_refuses_it(override: str, message: str) -> None:
    assert containing(message) in problems(TEXT, override)


def test_a_manual_move_needs_a_link_of_the_scenario() -> None:
    plan = make_plan(parse(TEXT, "f.yaml"), None)
    (made,) = faults_by_hand({"action": "move", "node": "device-0-1", "to": "edge-1"}, plan, 1.0, 1)
    assert (made.fault.node, made.fault.to) == ("device-0-1", "edge-1")
    with pytest.raises(ValueError, match="device-0-0 has no link to edge-1"):
        faults_by_hand({"action": "move", "node": "device-0-0", "to": "edge-1"}, plan, 1.0, 1)
