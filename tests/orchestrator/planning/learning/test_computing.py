"""What nodes train on, in the plan."""

from __future__ import annotations

import json

import pytest

from orchestrator.errors import PlanError
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Accelerated, Plan
from orchestrator.scenario.reading import parse
from tests.orchestrator.labels import prepared
from tests.texts import containing

TEXT = "algorithm: hierfavg\ntopology: {edges: 2, devices_per_edge: 1}\n"


def plan(*overrides: str) -> Plan:
    return make_plan(parse(TEXT, "f.yaml", overrides), prepared())


def test_all_nodes_train_on_the_runs_device_but_those_with_an_accelerator_of_their_own() -> None:
    made = plan("compute.device=cuda", "hardware.edge.accelerator=cuda:1", "hardware.edge-1.accelerator=cpu")
    devices = {node.name: node.device for node in made.nodes}
    others = dict.fromkeys(["cloud", "device-0-0", "device-1-0"], "cuda")
    assert devices == {"edge-0": "cuda:1", "edge-1": "cpu", **others}
    assert made.accelerators == {"cuda": ["cloud", "device-0-0", "device-1-0"], "cuda:1": ["edge-0"]}


def test_plan_json_reports_devices_next_to_the_processor_only() -> None:
    assert all("device" not in node for node in plan().recorded["nodes"])
    assert "clients_at_once" not in plan().recorded
    found = {node["name"]: node.get("device") for node in plan("hardware.edge.accelerator=cuda").recorded["nodes"]}
    assert found == {"cloud": None, "edge-0": "cuda", "edge-1": "cuda", "device-0-0": None, "device-1-0": None}


def test_nodes_that_train_on_accelerators_by_image_and_device() -> None:
    made = plan("compute.device=cuda", "hardware.edge.image=mine", "hardware.device-0-0.accelerator=cpu")
    assert made.accelerated() == [
        Accelerated(None, "cuda", ["cloud", "device-1-0"]),
        Accelerated("mine", "cuda", ["edge-0", "edge-1"]),
    ]
    assert [Accelerated(*each) for each in json.loads(json.dumps(made.accelerated()))] == made.accelerated()
    assert made.accelerated("pc-1") == []


def test_a_processors_speed_is_not_emulated_on_an_accelerator() -> None:
    asked = ("compute.device=cuda", "hardware.device=raspberry-pi-4")
    with pytest.raises(PlanError, match=r"hardware.device: device-0-0 emulates .*\(raspberry-pi-4\).* on cuda"):
        make_plan(parse(TEXT, "f.yaml", asked), prepared())
    assert plan(*asked, "driver=sim").nodes[3].device == "cuda"  # its time is modelled


@pytest.mark.parametrize(
    ("overrides", "clients"),
    [
        (["driver=sim"], 1),
        (["driver=sim", "compute.clients_at_once=8"], 8),
        (["driver=sim", "compute.device=cuda"], 64),
        (["driver=sim", "hardware.edge.accelerator=cuda"], 64),
        (["driver=sim", "compute.device=cuda", "compute.clients_at_once=1"], 1),
        (["compute.device=cuda"], 1),
    ],
)
def test_clients_train_at_once_on_an_accelerator(overrides: list[str], clients: int) -> None:
    assert plan(*overrides).clients_at_once == clients


def test_where_nodes_train_by_themselves_a_note_says_so() -> None:
    assert containing("the driver sim trains 8 clients") in plan("compute.clients_at_once=8").notes()
    assert not any("at once" in note for note in plan("compute.clients_at_once=8", "driver=sim").notes())
