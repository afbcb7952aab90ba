from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from orchestrator.planning.faults.manual import faults_by_hand, topology_of
from orchestrator.planning.faults.timeline import Fault
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.scenario.reading import load, parse
from tests.shipped import SCENARIOS

SCENARIO = """\
algorithm: {name: hierfavg, rounds: 5}
topology: {edges: 2, devices_per_edge: [1, 2]}
"""
PROGRAMS = "programs: {cloud: sleep 9, device: sleep 9}\ntopology: {edges: 0, devices: 2}\nstop: {after: 9s}\n"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(parse(SCENARIO, "f.yaml"), None)


def test_a_fault_takes_effect_now(plan: Plan) -> None:
    (made,) = faults_by_hand({"action": "crash", "node": "device-1-1", "for": "5s"}, plan, 12.345, 7)
    assert made.fault == Fault(7, "crash", "device-1-1", None, 12.345, None, 5.0)
    assert made.written == {"action": "crash", "node": "device-1-1", "for": "5s"}


def test_several_nodes_are_several_faults(plan: Plan) -> None:
    made = faults_by_hand({"action": "pause", "nodes": ["edge-0", "edge-1"], "for": "1s"}, plan, 1.0, 3)
    assert [(fault.id, written["node"]) for fault, written in made] == [(3, "edge-0"), (4, "edge-1")]
    assert all("nodes" not in written for _, written in made)
    drawn = faults_by_hand({"action": "pause", "of": "devices", "count": 2}, plan, 1.0, 1)
    assert {fault.node for fault, _ in drawn} < {"device-0-0", "device-1-0", "device-1-1"}
    assert all(written == {"node": fault.node, "action": "pause"} for fault, written in drawn)


def test_a_partition_and_a_degraded_link_have_their_directions(plan: Plan) -> None:
    (cut,) = faults_by_hand({"action": "partition", "between": ["edge-0", "cloud"]}, plan, 1.0, 1)
    assert set(cut.fault.links) == {("edge-0", "cloud"), ("cloud", "edge-0")}
    (worse,) = faults_by_hand({"action": "degrade", "node": "device-0-0", "loss": "5%"}, plan, 1.0, 1)
    assert set(worse.fault.links) == {("edge-0", "device-0-0"), ("device-0-0", "edge-0")}
    assert worse.fault.profile == {"loss": "5%"}
    assert Fault.from_json(json.loads(json.dumps(asdict(cut.fault)))) == cut.fault
    assert Fault.from_json(json.loads(json.dumps(asdict(worse.fault)))) == worse.fault


WATCHED = """\
programs: {cloud: serve, device: ask, watcher: {on: cloud, command: watch}}
topology: {cloud: true, edges: 0, devices: 2}
"""


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"action": "crash", "node": "device-9"}, "node: there is no node 'device-9'"),
        ({"action": "crash", "node": "cloud", "zeal": 1}, "zeal: unknown key"),
        (
            {"action": "crash", "node": "cloud", "round": 3},
            "round: a manual fault takes effect",
        ),
        ({"action": "degrade", "node": "edge-0", "rate": "1Mbps"}, "rate: '1Mbps': the unit 'Mbps' is read"),
        ({}, "'action' is missing"),
    ],
)
def test_the_checks_and_words_of_a_scenario(plan: Plan, written: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=rf"^.*{re.escape(said)}.*$"):  # one line
        faults_by_hand(written, plan, 1.0, 1)


def test_one_program_of_a_node() -> None:
    plan = make_plan(parse(WATCHED, "f.yaml"), None)
    written = {"action": "crash", "node": "cloud", "program": "watcher"}
    ((fault, _),) = faults_by_hand(written, plan, 1.0, 1)
    assert (fault.node, fault.program, fault.target) == ("cloud", "cloud.watcher", "program cloud.watcher")
    with pytest.raises(ValueError, match="program: cloud has no program 'watch'"):
        faults_by_hand(written | {"program": "watch"}, plan, 1.0, 1)


def test_a_program_cannot_be_slowed() -> None:
    plan = make_plan(parse(PROGRAMS, "f.yaml"), None)
    with pytest.raises(ValueError, match="a program cannot be slowed"):
        faults_by_hand({"action": "slow", "node": "cloud", "factor": 2}, plan, 1.0, 1)


def test_a_simulated_node_has_no_address() -> None:
    plan = make_plan(parse("algorithm: fedavg\ndriver: sim\ntopology: {devices: 2}\n", "f.yaml"), None)
    with pytest.raises(ValueError, match=r"nodes.*driver sim have no"):
        faults_by_hand({"action": "new-address", "node": "device-0"}, plan, 1.0, 1)


@pytest.mark.parametrize("shared", ["", "shared: {cell: {rate: 9mbit, members: [device-*]}}\n"])
def test_with_shared_media_the_kernel_engine_knows_nodes_by_their_addresses(shared: str) -> None:
    text = "algorithm: fedavg\nengine: kernel\ntopology: {devices: 2}\nlinks: {device-cloud: {rate: 50mbit}}\n"
    plan = make_plan(parse(text + shared, "f.yaml"), None)
    written = {"action": "new-address", "node": "device-0"}
    if shared:
        with pytest.raises(ValueError, match="take engine userspace"):
            faults_by_hand(written, plan, 1.0, 1)
    else:
        assert len(faults_by_hand(written, plan, 1.0, 1)) == 1


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda path: path.stem)
def test_the_topology_of_every_scenario(file: Path) -> None:
    scenario = load(file)
    if scenario.topology.device_count + scenario.topology.edges > 60:
        return
    plan = make_plan(scenario, None)
    assert [each.name for each in topology_of(plan.nodes).members()] == [node.name for node in plan.nodes]


def test_a_profile_of_a_plug_in(tmp_path: Path) -> None:
    """A manual fault knows what the run's scenario knows."""
    code = 'import edgebed\nPLUGIN = edgebed.Plugin(profiles={"microwave": {"latency": "3ms", "rate": "200mbit"}})\n'
    (tmp_path / "links.py").write_text(code)
    plan = make_plan(parse(f"plugins: [links.py]\n{SCENARIO}", str(tmp_path / "f.yaml")), None)
    (worse,) = faults_by_hand({"action": "degrade", "node": "device-0-0", "profile": "microwave"}, plan, 1.0, 1)
    assert worse.fault.profile is not None
    assert (worse.fault.profile["latency"], worse.fault.profile["rate"]) == ("3ms", "200mbit")
