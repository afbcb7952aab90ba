"""The lines that give a node's links their MTU."""

from __future__ import annotations

from orchestrator.fabric.namespaces.setup import needs_ipv6
from orchestrator.fabric.namespaces.wiring import mtus_of, path_routes, wires_of, within
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.scenario.reading import parse

TEXT = """\
algorithm: fedavg
topology: {edges: 0, devices: 3}
links: {device-0 <-> cloud: {mtu: 1280}, device-1 <-> cloud: {mtu: 1279}}
"""


def plan() -> Plan:
    return make_plan(parse(TEXT, "f.yaml"), None)


def test_both_ends_of_a_link_know_its_mtu() -> None:
    made = plan()
    mtus = {"cloud": {"device-0": 1280, "device-1": 1279}, "device-0": {"cloud": 1280}, "device-1": {"cloud": 1279}}
    assert mtus_of(made) == wires_of(made).mtus == mtus


def test_no_mtu_is_above_that_of_the_interfaces() -> None:
    assert within({"a": {"b": 1480, "c": 1400}}, 1450) == {"a": {"b": 1450, "c": 1400}}


def test_each_link_with_an_mtu_has_a_route_and_without_enough_of_it_no_ipv6() -> None:
    made = plan()
    cloud, *devices = made.nodes
    # Node number n has the address 10.77.0.0 + n, and fd65:6467:6562:: followed by it.
    assert path_routes(cloud, "cubic", devices, mtus_of(made)["cloud"]) == [
        "route replace 10.77.0.2/32 dev data0 src 10.77.0.1 mtu 1280 congctl cubic",
        "route replace fd65:6467:6562::a4d:2/128 dev data0 src fd65:6467:6562::a4d:1 mtu 1280 congctl cubic",
        "route replace 10.77.0.3/32 dev data0 src 10.77.0.1 mtu 1279 congctl cubic",
        "route replace unreachable fd65:6467:6562::a4d:3/128",
    ]
    assert path_routes(cloud, None, devices[:1], {"device-0": 1280})[0].endswith(" mtu 1280")


def test_lines_for_ipv6_are_known() -> None:
    cloud, *devices = plan().nodes
    lines = path_routes(cloud, None, devices, {"device-0": 1280, "device-1": 600})
    assert [needs_ipv6(line) for line in lines] == [False, True, False, True]
    assert not needs_ipv6("link add v1.1 mtu 1500 type veth peer name data0 address 02:ed:00:00:00:01 netns 7")
