"""NATs of links: which links have one, where it is, and what refuses it."""

from __future__ import annotations

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.fabric.userspace import nat_requests
from orchestrator.planning.kernel_engine import beyond_kernel_of
from orchestrator.planning.making import make_plan
from orchestrator.scenario.reading import parse
from tests.texts import containing

TEXT = """\
topology: {cloud: true, edges: 2, devices_per_edge: 2, mesh: true}
links:
  device-edge: {profile: lte, nat_timeout: 60s}
  edge-cloud: {latency: 20ms}
  edge-edge: {latency: 20ms}
programs: {device: {command: a}, edge: {command: a}, cloud: {command: a}}
"""


def problems(*overrides: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse(TEXT, "f.yaml", overrides)
    return [f"{found.path}: {found.message}" for found in caught.value.problems]


def test_a_nat_is_before_the_node_that_is_further_from_the_cloud() -> None:
    scenario = parse(TEXT, "f.yaml", ["links.edge-1 <-> device-1-0={nat_timeout: 5s}"])
    assert scenario.resolved_links.nats == {
        ("edge-0", "device-0-0"): 60.0,
        ("edge-0", "device-0-1"): 60.0,
        ("edge-1", "device-1-0"): 5.0,
        ("edge-1", "device-1-1"): 60.0,
    }


def test_null_takes_the_nat_of_a_class_away() -> None:
    without = [
        f"links.device-{edge}-{number} <-> edge-{edge}={{nat_timeout: null}}" for edge in (0, 1) for number in (0, 1)
    ]
    assert parse(TEXT, "f.yaml", without).resolved_links.nats == {}


def test_an_entry_for_two_nodes_keeps_the_nat_of_its_class() -> None:
    scenario = parse(TEXT, "f.yaml", ["links.device-0-0 <-> edge-0={loss: 1%}"])
    assert scenario.resolved_links.nats["edge-0", "device-0-0"] == 60.0


def test_the_plan_has_it_and_takes_the_engine_that_has_it() -> None:
    plan = make_plan(parse(TEXT, "f.yaml"), None)
    (link,) = [each for each in plan.links if (each.source, each.target) == ("edge-0", "device-0-0")]
    assert (link.nat_timeout, link.to_json()["nat_timeout"]) == (60.0, 60.0)
    (back,) = [each for each in plan.links if (each.source, each.target) == ("device-0-0", "edge-0")]
    assert "nat_timeout" not in back.to_json()
    assert nat_requests([back, link]) == [
        {"op": "nat", "source": "edge-0", "target": "device-0-0", "timeout": 60.0},
    ]
    assert beyond_kernel_of(plan) == "it has no NAT"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("engine=kernel", "engine: kernel has no NAT: leave"),
        (
            "driver=swarm",
            "driver: a NAT needs both directions",
        ),
        ("links.edge-edge.nat_timeout=5s", "links.edge-edge: nat_timeout: neither of two edges"),
        (
            "links.edge-0 <-> edge-1={nat_timeout: 5s}",
            "links.edge-0 <-> edge-1: nat_timeout: neither",
        ),
        (
            "links.edge-0 -> device-0-0={nat_timeout: 5s}",
            "links.edge-0 -> device-0-0: nat_timeout: write 'edge-0",
        ),
        ("links.device-edge.nat_timeout=0s", "links.device-edge.nat_timeout: must be above 0, not"),
    ],
)
def test_what_refuses_it(override: str, message: str) -> None:
    assert containing(message) in problems(override)


def test_the_simulation_refuses_it() -> None:
    text = "algorithm: fedavg\ndriver: sim\ntopology: {devices: 2}\nlinks: {device-cloud: {nat_timeout: 60s}}\n"
    with pytest.raises(ScenarioError) as caught:
        parse(text, "f.yaml")
    assert "no flows that a NAT could" in str(caught.value)
