"""A plan on several hosts, and what becomes of it in plan.json."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import PlanError, ScenarioError
from orchestrator.planning.hosts.inventory import HostFacts, Inventory, Underlay
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.scenario.reading import parse, placed
from orchestrator.scenario.sections.hardware import HARDWARE, HardwareClass
from tests.orchestrator.labels import prepared
from tests.texts import containing

TEXT = """\
algorithm: hierfavg
driver: swarm
topology: {edges: 1, devices_per_edge: 2}
hardware: {device: raspberry-pi-4}
hosts: {edge: pc-2}
links:
  device-edge: {latency: 5ms, rate: 20mbit}
  edge-cloud: {latency: 20ms, rate: 50mbit}
"""
INVENTORY = Inventory(
    hosts=(
        HostFacts("pi-1", "192.0.2.7", "arm64", 4, 4 << 30, {"edgebed.hardware": "raspberry-pi-4"}),
        HostFacts("pc-2", "192.0.2.2", "amd64", 8, 16 << 30),
        HostFacts("pc-3", "192.0.2.3", "amd64", 1, 16 << 30),  # nobody lives here
        HostFacts("pc-1", "192.0.2.1", "amd64", 8, 16 << 30, manager=True),
    ),
    underlay={("pi-1", "pc-2"): Underlay(delay=0.0004, rate=1e9, mtu=1500)},
)


def plan(*overrides: str, inventory: Inventory | None = INVENTORY) -> Plan:
    return make_plan(parse(TEXT, "f.yaml", overrides), prepared(), inventory=inventory)


def test_every_node_has_a_host() -> None:
    made = plan()
    assert [(node.name, node.host) for node in made.nodes] == [
        ("cloud", "pc-1"),
        ("edge-0", "pc-2"),
        ("device-0-0", "pi-1"),
        ("device-0-1", "pc-2"),
    ]
    assert [host.name for host in made.hosts] == ["pc-1", "pc-2", "pi-1"]
    assert made.placement is not None
    assert [(each.source, each.target, each.rate) for each in made.placement.crossings] == [
        ("pc-1", "pc-2", 50e6),
        ("pc-2", "pc-1", 50e6),
        ("pc-2", "pi-1", 20e6),
        ("pi-1", "pc-2", 20e6),
    ]
    assert made.notes() == ["device-0-0: real raspberry-pi-4; device-0-1: emulated ones"]


def test_a_board_is_not_emulated_and_its_deadline_is_that_of_its_class() -> None:
    made = plan()
    assert made.node("device-0-0").hardware == HardwareClass("raspberry-pi-4", speed=None, cores=None, memory=None)
    assert made.node("device-0-1").hardware is HARDWARE["raspberry-pi-4"]
    alone = [f"hosts.device-0-{each}=pi-1" for each in range(2)]
    assert plan(*alone).gathering == plan(inventory=None).gathering


def test_links_keep_what_was_configured() -> None:
    assert plan().links == plan(inventory=None).links


def test_plan_json_has_the_hosts_that_nodes_run_on() -> None:
    made = json.loads(json.dumps(plan().to_json()))
    assert [host["name"] for host in made["hosts"]] == ["pc-1", "pc-2", "pi-1"]
    assert made["hosts"][2] == {
        "name": "pi-1",
        "address": "192.0.2.7",
        "architecture": "arm64",
        "cores": 4,
        "memory": 4 << 30,
        "labels": {"edgebed.hardware": "raspberry-pi-4"},
        "manager": False,
    }
    assert [node["host"] for node in made["nodes"]] == ["pc-1", "pc-2", "pi-1", "pc-2"]
    assert "placement" not in made


def test_other_measurements_give_an_equal_plan() -> None:
    """So that a run can be continued after the network was measured again."""
    slower = {("pi-1", "pc-2"): Underlay(delay=0.0005, rate=1e6, mtu=1500)}
    again = plan(inventory=Inventory(INVENTORY.hosts[::-1], slower))
    assert again == plan()
    assert again.recorded == plan().recorded
    assert again.placement is not None
    assert again.placement != plan().placement


def test_without_hosts_plan_json_says_nothing_of_hosts() -> None:
    made = plan("hosts={}", inventory=None)
    assert "hosts" not in made.to_json()
    assert all("host" not in node for node in made.to_json()["nodes"])
    assert (made.placement, made.hosts, made.node("cloud").host) == (None, (), "")
    alone = plan("hosts={}", "driver=docker", inventory=None)
    assert plan("hosts={}", "driver=docker") == alone  # a driver of one host has no use for an inventory


def test_schedules_and_faults_may_not_ask_for_too_little_delay() -> None:
    assert plan("links.device-edge.latency=1ms").placement is not None
    expected = r"^links\.device-edge: device-0-0 -> edge-0.*100us"
    schedule = "links.device-edge.schedule={steps: [{at: 1s, latency: 100us}]}"
    fault = "faults=[{every_round: 50%, of: devices, action: degrade, latency: 100us}]"
    for change in (schedule, fault):
        with pytest.raises(PlanError, match=expected):
            plan(change)


REAL = ("links.device-edge=real", "hosts={device: pi-1, edge: pc-2}")


def test_real_links_ask_for_nothing_of_the_network() -> None:
    slow = {pair: Underlay(delay=0.3, rate=1e3, mtu=1500) for pair in (("pi-1", "pc-2"), ("pc-2", "pi-1"))}
    made = plan(*REAL, inventory=Inventory(INVENTORY.hosts, slow))
    assert made.placement is not None
    assert [(each.source, each.target, each.links, each.real, each.rate) for each in made.placement.crossings] == [
        ("pc-1", "pc-2", 1, 0, 50e6),
        ("pc-2", "pc-1", 1, 0, 50e6),
        ("pc-2", "pi-1", 2, 2, 0),
        ("pi-1", "pc-2", 2, 2, 0),
    ]
    (note,) = made.placement.crossing_notes()
    assert note == containing("was not measured", "pc-1 -> pc-2, pc-2 -> pc-1")


def test_emulated_links_next_to_real_ones_are_computed_as_before() -> None:
    with pytest.raises(PlanError, match=r"^links\.device-edge: device-0-0 -> edge-0.*100us"):
        plan("links.device-edge={profile: real, up: {profile: lan}}", REAL[1])
    made = plan("links.device-edge={profile: real, up: {profile: wifi}}", REAL[1])
    assert made.placement is not None
    assert [(each.links, each.real, each.rate) for each in made.placement.crossings[2:]] == [(2, 2, 0), (2, 0, 78e6)]


@pytest.mark.parametrize("entry", ["device-edge", "device-0-1 <-> edge-0"])
def test_a_real_link_within_a_host_is_refused(entry: str) -> None:
    """device-0-1 lives on pc-2, beside its edge."""
    scenario = parse(TEXT, "f.yaml", [f"links.{entry}=real"])
    with pytest.raises(PlanError) as caught:
        make_plan(scenario, prepared(), inventory=INVENTORY)
    assert caught.value.path == ("links", entry)
    assert caught.value.message == containing("device-0-1 -> edge-0", "pc-2", "(1 more", "`hosts`")


def test_what_hosts_lack_is_reported_with_its_line() -> None:
    scenario = parse(TEXT, "f.yaml", ["hosts.edge=pc-9"])
    with pytest.raises(ScenarioError) as caught, placed(Path("f.yaml"), ["hosts.edge=pc-9"], TEXT):
        make_plan(scenario, prepared(), inventory=INVENTORY)
    assert str(caught.value) == containing("--set hosts.edge=pc-9: hosts.edge", "'pc-9'")


def test_nodes_that_train_on_an_accelerator_live_where_the_label_is() -> None:
    labelled = tuple(
        replace(host, labels={"edgebed.accelerator": "cuda"}) if host.name == "pc-3" else host
        for host in INVENTORY.hosts
    )
    asked = ("hardware.edge.accelerator=cuda:1", "hosts={}")
    made = plan(*asked, inventory=Inventory(labelled))
    assert {node.host for node in made.nodes if node.device != "cpu"} == {"pc-3"}
    assert [each.nodes for each in made.accelerated("pc-3")] == [["edge-0"]]
    with pytest.raises(PlanError, match=r"edge-0 trains on cuda:1.*edgebed.accelerator=cuda"):
        make_plan(parse(TEXT, "f.yaml", asked), prepared(), inventory=INVENTORY)
    with pytest.raises(PlanError, match=r"no host of hosts.edge: pc-2"):
        make_plan(parse(TEXT, "f.yaml", asked[:1]), prepared(), inventory=Inventory(labelled))
