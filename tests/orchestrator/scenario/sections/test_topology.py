"""Names, tiers and who may talk to whom."""

from __future__ import annotations

from orchestrator.scenario.sections.topology import Member, Pair, Topology


def test_nodes_are_named_by_their_place() -> None:
    assert Topology(edges=2, devices_per_edge=[1, 2]).members() == [
        Member("cloud", "cloud", None),
        Member("edge-0", "edge", "cloud"),
        Member("edge-1", "edge", "cloud"),
        Member("device-0-0", "device", "edge-0"),
        Member("device-1-0", "device", "edge-1"),
        Member("device-1-1", "device", "edge-1"),
    ]


def test_devices_alone_are_below_the_cloud() -> None:
    topology = Topology(devices=2)
    assert topology.members()[1:] == [Member("device-0", "device", "cloud"), Member("device-1", "device", "cloud")]
    assert topology.pairs(mesh=False)[0] == Pair("device-0", "cloud", "device-cloud")


def test_edges_without_a_cloud_have_no_parent() -> None:
    topology = Topology(edges=3, devices_per_edge=0, cloud=False)
    assert topology.members() == [Member(f"edge-{n}", "edge", None) for n in range(3)]
    assert topology.pairs(mesh=False) == []


def test_in_a_mesh_every_edge_has_a_link_with_every_other() -> None:
    pairs = Topology(edges=3, devices_per_edge=1).pairs(mesh=True)
    assert [pair.link_class for pair in pairs] == ["edge-cloud"] * 3 + ["device-edge"] * 3 + ["edge-edge"] * 3
    assert pairs[-3:] == [
        Pair("edge-0", "edge-1", "edge-edge"),
        Pair("edge-0", "edge-2", "edge-edge"),
        Pair("edge-1", "edge-2", "edge-edge"),
    ]


def test_groups_and_names() -> None:
    topology = Topology(edges=2, devices_per_edge=1)
    assert topology.group("devices") == ["device-0-0", "device-1-0"]
    assert topology.group("cloud") == ["cloud"]
    assert topology.group("nobody") == []
    assert topology.expand(["edge-1", "edges", "cloud"]) == ["edge-1", "edge-0", "cloud"]
