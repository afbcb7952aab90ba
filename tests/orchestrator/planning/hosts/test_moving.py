"""Where the nodes of a lost host go: each rule by an example that can be done by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from netem.profile import LinkProfile
from orchestrator.planning.hosts.inventory import HostFacts, Inventory, Underlay
from orchestrator.planning.hosts.moving import Moves, kept_apart, moves
from orchestrator.planning.hosts.packing import MEMORY
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.scenario.reading import parse
from tests.texts import containing

GIB = 1 << 30
SCENARIO = """\
algorithm: hierfavg
driver: swarm
topology: {{edges: 2, devices_per_edge: 2}}
links: {{device-edge: {{latency: {device_edge}}}, edge-cloud: {{latency: 10ms}}}}
"""
GROUPS = "hosts: {cloud: a, edge-0: general=1, edge-1: general=1, device: general=1}\n"
LABEL = {"edgebed.general": "1"}


def host(name: str, memory: int = 16 * GIB, cores: float = 8, labels: Mapping[str, str] = LABEL) -> HostFacts:
    return HostFacts(name, "192.0.2.1", "amd64", cores, memory, labels, manager=name == "a")


def planned(*hosts: HostFacts, pins: str = "", device_edge: str = "5ms", homes: Mapping[str, str]) -> Plan:
    """A plan with ``homes``, by node or group; ``pins``: the scenario's `hosts`."""
    made = make_plan(parse(SCENARIO.format(device_edge=device_edge) + pins, "f.yaml"), None, inventory=Inventory(hosts))
    by_node = {node.name: homes.get(node.name) or homes[node.parent or ""] for node in made.nodes}
    return replace(made, nodes=tuple(replace(node, host=by_node[node.name]) for node in made.nodes), hosts=hosts)


def lost(
    plan: Plan, host: str, between: Mapping[tuple[str, str], float] | None = None, also: tuple[str, ...] = ()
) -> Moves:
    """What becomes of the nodes of a host that is lost; those of ``also`` are away too. ``between``: delays in s."""
    homes = {node.name: node.host for node in plan.nodes}
    there = {each.name for each in plan.hosts} - {host, *also}
    return moves(plan, homes, [name for name, at in homes.items() if at == host], there, underlay(between or {}))


def underlay(delays: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], Underlay]:
    found = {pair: Underlay(delay, None, 1500) for pair, delay in delays.items()}
    return found | {pair[::-1]: each for pair, each in found.items()}


HOMES = {"cloud": "a", "edge-0": "b", "edge-1": "c"}


def test_an_edge_and_its_devices_move_together_to_where_most_cores_are_free() -> None:
    found = lost(planned(host("a"), host("b", cores=16), host("c"), homes=HOMES), "c")
    # a: 8 cores less 1; b: 16 less 3
    assert found.hosts == {"edge-1": "b", "device-1-0": "b", "device-1-1": "b"}
    assert found.reasons == {"edge-1": "most cores free", "device-1-0": "with its edge", "device-1-1": "with its edge"}
    assert found.staying == {}


def test_the_cloud_moves_too_and_comes_first() -> None:
    homes = {"cloud": "b", "edge-0": "b", "edge-1": "c"}
    found = lost(planned(host("a", 4 * MEMORY), host("b"), host("c"), homes=homes), "b")
    assert found.hosts == {"cloud": "a", "edge-0": "a", "device-0-0": "a", "device-0-1": "a"}
    assert found.reasons["cloud"] == "a manager, next to the orchestrator"


def test_a_device_alone_joins_those_of_its_edge() -> None:
    homes = {"cloud": "a", "edge-0": "b", "edge-1": "b", "device-1-0": "c", "device-1-1": "c"}
    found = lost(planned(host("a"), host("b"), host("c"), homes=homes), "c")
    assert set(found.hosts.values()) == {"b"}  # though a has more free cores
    assert found.reasons["device-1-0"] == "with its edge"


def test_memory_is_never_given_twice() -> None:
    # a has room for the cloud and one more, b for the three that live there and one more
    found = lost(planned(host("a", 2 * MEMORY + 1), host("b", 4 * MEMORY), host("c"), homes=HOMES), "c")
    assert sorted(found.hosts.values()) == ["a", "b"]
    ((name, reason),) = found.staying.items()
    assert name == "device-1-1"
    assert reason == containing("no other host", "a has 1 B", "300 MB", "b has 0 B")


def test_what_hosts_says_still_holds() -> None:
    pins = "hosts: {edge-1: c, device-1-0: general=1, device-1-1: rack=2}\n"
    rack = {"edgebed.rack": "2", **LABEL}
    plan = planned(host("a"), host("b", labels=rack), host("c", labels=rack), homes=HOMES, pins=pins)
    found = lost(plan, "c")
    assert found.hosts["device-1-1"] == "b"
    assert found.hosts["device-1-0"] in ("a", "b")
    assert found.staying == {"edge-1": "`hosts` allows none of a, b"}


BOARD = {"edgebed.hardware": "raspberry-pi-4"}


def test_no_node_moves_from_a_real_board_or_to_one() -> None:
    pi, another = host("pi", labels=BOARD), host("qi", labels=BOARD)
    made = make_plan(
        parse(SCENARIO.format(device_edge="5ms") + "hardware: {device-0-0: raspberry-pi-4}\n", "f.yaml"),
        None,
        inventory=Inventory((host("a"), pi)),
    )
    plan = replace(made, hosts=(host("a"), pi, another))
    assert plan.node("device-0-0").host == "pi"
    assert lost(plan, "pi").staying == {"device-0-0": "it runs on a real raspberry-pi-4"}
    assert all(reason == containing("no other host") for reason in lost(plan, "a").staying.values())


def test_no_node_with_a_real_link_moves() -> None:
    plan = planned(host("a"), host("b"), host("c"), homes=HOMES)
    real = LinkProfile(real=True)
    links = tuple(
        replace(link, profile=real) if {link.source, link.target} == {"edge-1", "cloud"} else link
        for link in plan.links
    )
    found = lost(replace(plan, links=links), "c")
    assert found.staying == {"edge-1": containing("host is one of its links")}
    assert set(found.hosts) == {"device-1-0", "device-1-1"}


def test_a_link_that_would_be_faster_than_the_network_keeps_a_node_from_a_host() -> None:
    slow = {("a", "b"): 0.02, ("a", "c"): 0.001, ("b", "c"): 0.001}
    found = lost(planned(host("a"), host("b", cores=64), host("c"), homes=HOMES), "c", slow)
    assert set(found.hosts.values()) == {"a"}  # edge-cloud asks for 10 ms, and b is 20 ms away from the cloud
    homes = HOMES | {"cloud": "b", "edge-0": "a"}
    found = lost(
        planned(host("a"), host("b"), host("c"), homes=homes, pins="hosts: {edge-1: c, cloud: b}\n"), "c", slow
    )
    assert set(found.hosts) == {"device-1-0", "device-1-1"}  # the edge stays, and is 1 ms away from a and b


def test_links_within_a_group_do_not_cross_hosts_if_it_moves_whole() -> None:
    near = {pair: 0.001 for pair in (("a", "b"), ("a", "c"), ("b", "c"))}
    small = planned(host("a", 2 * MEMORY), host("b", 5 * MEMORY, 64), host("c"), homes=HOMES, device_edge="0.1ms")
    found = lost(small, "c", near)
    assert found.hosts == {"edge-1": "b", "device-1-0": "b"}
    assert found.staying["device-1-1"] == containing("it: device-1-1 -> edge-1", "0.1 ms", "1.1 ms", "300 MB")


def test_a_node_that_stayed_may_be_kept_apart_from_those_that_moved() -> None:
    plan = planned(host("a"), host("b"), host("c"), homes=HOMES, device_edge="0.1ms")
    homes = {node.name: node.host for node in plan.nodes}
    between = underlay({("b", "c"): 0.001})
    assert kept_apart(plan, homes, "device-1-1", between) is None
    homes["edge-1"] = "b"
    assert kept_apart(plan, homes, "device-1-1", between) == containing("device-1-1 -> edge-1", "0.1 ms", "1.1 ms")


PROGRAMS = """\
driver: swarm
programs:
  cloud: {command: serve, image: served}
  watcher: {on: cloud, command: watch, image: watched}
  device: {command: ask, image: served}
topology: {edges: 0, devices: 2}
links: {device-cloud: {latency: 10ms}}
"""


def test_a_node_moves_where_the_images_of_its_programs_are() -> None:
    hosts = (host("a"), host("b", cores=16), host("c"))
    pins = "hosts: {cloud: general=1, device: general=1}\n"
    made = make_plan(parse(PROGRAMS + pins, "f.yaml"), None, inventory=Inventory(hosts))
    homes = {"cloud": "a", "device-0": "b", "device-1": "c"}
    plan = replace(made, nodes=tuple(replace(node, host=homes[node.name]) for node in made.nodes), hosts=hosts)
    assert lost(plan, "c").hosts == {"device-1": "b"}  # a has its image too, and fewer free cores
    assert lost(plan, "a").staying == {"cloud": containing("no node of the image served")}


def test_a_node_of_an_own_image_moves_where_the_image_is() -> None:
    plan = planned(host("a"), host("b"), host("c"), homes=HOMES)
    special = {"device-0-0": "mine", "device-1-0": "mine", "device-1-1": "other"}
    plan = replace(plan, nodes=tuple(replace(node, image=special.get(node.name)) for node in plan.nodes))
    found = lost(plan, "c")
    assert found.hosts["device-1-0"] == "b"
    assert found.staying == {"device-1-1": containing("no node of the image other")}


def test_only_hosts_that_are_there_take_nodes() -> None:
    found = lost(planned(host("a"), host("b", cores=64), host("c"), homes=HOMES), "c", also=("b",))
    assert set(found.hosts.values()) == {"a"}


@given(st.lists(st.integers(0, 8), min_size=3, max_size=3), st.integers(0, 2))
def test_whatever_moves_fits_and_nothing_is_forgotten(rooms: list[int], which: int) -> None:
    """``rooms``: for how many more nodes each host has memory."""
    names = ("a", "b", "c")
    living = {"a": 1, "b": 3, "c": 3}
    hosts = [host(name, (living[name] + room) * MEMORY) for name, room in zip(names, rooms, strict=True)]
    plan = planned(*hosts, homes=HOMES)
    gone = names[which]
    found = lost(plan, gone)
    assert {*found.hosts, *found.staying} == {node.name for node in plan.nodes if node.host == gone}
    assert not found.hosts.keys() & found.staying.keys()
    for name, room in zip(names, rooms, strict=True):
        assert sum(at == name for at in found.hosts.values()) <= room * (name != gone)
    free = sum(room for name, room in zip(names, rooms, strict=True) if name != gone)
    assert len(found.hosts) == min(living[gone], free)
