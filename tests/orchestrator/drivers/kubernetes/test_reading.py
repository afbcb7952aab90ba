"""Nodes and pods as the API's reference shows them (core/v1, Node and Pod), shortened."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.drivers.kubernetes.reading import quantity, read_inventory, read_pods
from orchestrator.planning.hosts.inventory import HostFacts
from tests.texts import containing


def node(name: str = "n1", spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    usual = {
        "allocatable": {"cpu": "3920m", "memory": "15Gi", "pods": "110"},
        "addresses": [
            {"type": "Hostname", "address": name},
            {"type": "InternalIP", "address": "fd00::7"},
            {"type": "InternalIP", "address": "10.0.0.7"},
        ],
        "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
        "nodeInfo": {"architecture": "amd64"},
    }
    return {"metadata": {"name": name, "labels": {"rack": "2"}}, "spec": spec or {}, "status": {**usual, **status}}


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("4", 4),
        ("0.5", 0.5),
        ("1500m", 1.5),
        ("2Ki", 2048),
        ("3G", 3e9),
        ("1e3", 1000),
        ("12E", 12e18),
        ("1Gi", 1 << 30),
    ],
)
def test_quantities(written: str, number: float) -> None:
    assert quantity(written) == number


def test_a_quantity_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="'many' is not a quantity"):
        quantity("many")


def test_a_host_has_what_its_node_has_for_pods() -> None:
    found = read_inventory([node()])
    assert found.hosts == (HostFacts("n1", "10.0.0.7", "amd64", 3.92, 15 << 30, {"rack": "2"}),)
    assert found.left_out == {}


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (node(conditions=[{"type": "Ready", "status": "Unknown"}]), "it is not ready"),
        (node(spec={"unschedulable": True}), "it is cordoned"),
        (
            node(spec={"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]}),
            "it has the taint node-role.kubernetes.io/control-plane",
        ),
        (node(nodeInfo={"architecture": "s390x"}), "its architecture is s390x"),
        (node(addresses=[{"type": "InternalIP", "address": "fd00::7"}]), "it has no IPv4 address"),
    ],
)
def test_a_node_on_which_no_agent_can_run_is_left_out(refused: dict[str, Any], why: str) -> None:
    found = read_inventory([refused, node("n2")])
    assert [each.name for each in found.hosts] == ["n2"]
    assert found.left_out == {"n1": why}


def test_a_preference_against_a_node_does_not_count() -> None:
    assert read_inventory([node(spec={"taints": [{"key": "a", "effect": "PreferNoSchedule"}]})]).left_out == {}


def test_states_of_agents() -> None:
    def agent(host: str, **status: Any) -> dict[str, Any]:
        return {"metadata": {"annotations": {"edgebed-host": host}}, "status": status}

    failed = {"reason": "Error", "exitCode": 1, "message": "this user may not make namespaces\n"}
    waits = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: Insufficient cpu"}
    assert read_pods(
        [
            agent("a", phase="Running", containerStatuses=[{"state": {"running": {}}}]),
            agent("b", phase="Pending", conditions=[waits]),
            agent(
                "c",
                phase="Running",
                containerStatuses=[
                    {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": failed}}
                ],
            ),
        ]
    ) == {
        "a": "running",
        "b": "pending: 0/3 nodes are available: Insufficient cpu",
        "c": containing("running: CrashLoopBackOff: this user may not"),
    }
