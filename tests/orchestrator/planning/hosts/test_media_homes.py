"""The host that has the queues of each shared medium: each rule by an example."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from orchestrator.errors import PlanError
from orchestrator.planning.hosts.inventory import HostFacts, Inventory, Underlay
from orchestrator.planning.hosts.media_homes import media_homes, ways
from orchestrator.planning.hosts.moving import kept_apart, moves
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.scenario.reading import parse
from tests.texts import containing

SCENARIO = """\
algorithm: hierfavg
driver: swarm
topology: {edges: 2, devices_per_edge: 2}
links: {device-edge: {latency: 5ms}, edge-cloud: {latency: 5ms}}
"""
CELLS = "shared: {cell-0: {rate: 9mbit, members: [device-0-*]}, cell-1: {rate: 9mbit, members: [device-1-*]}}\n"
WIDE = "shared: {cell-0: {rate: 9mbit, members: [device-*]}}\n"
HANDOVER = "faults: [{at: 1s, node: device-0-0, action: handover, to: cell-1}]\n"
APART = "hosts: {cloud: a, edge-0: a, edge-1: b, device-0-0: b, device-0-1: c, device-1-0: b, device-1-1: c}\n"

HOSTS = tuple(HostFacts(name, "192.0.2.1", "amd64", 32, 1 << 40, {}, manager=name == "a") for name in "abc")


def planned(text: str, *, cores: float = 32, delay: float | None = None) -> Plan:
    hosts = tuple(replace(host, cores=cores) for host in HOSTS)
    pairs = [(one, other) for one in "abc" for other in "abc" if one != other]
    underlay = {} if delay is None else dict.fromkeys(pairs, Underlay(delay, None, 1500))
    return make_plan(parse(SCENARIO + text, "f.yaml"), None, inventory=Inventory(hosts, underlay))


def homes(plan: Plan) -> Mapping[str, str]:
    assert plan.placement is not None
    return plan.placement.media


def test_a_medium_is_on_the_host_that_all_of_its_links_pass() -> None:
    backhaul = CELLS.replace("}}\n", '}, backhaul: {rate: 50mbit, members: ["edge-* <-> cloud"]}}\n')
    assert homes(planned(backhaul + APART)) == {"cell-0": "a", "cell-1": "b", "backhaul": "a"}
    devices = "hosts: {cloud: a, edge-0: a, edge-1: b, device: c}\n"
    assert homes(planned(WIDE + devices)) == {"cell-0": "c"}  # that of the devices


def test_of_two_hosts_the_upper_nodes_has_the_medium_unless_the_other_one_had_it_before() -> None:
    plan = planned(CELLS + "hosts: {cloud: a, edge: b, device: c}\n")
    assert homes(plan) == {"cell-0": "b", "cell-1": "b"}
    at = {node.name: node.host for node in plan.nodes}
    assert media_homes(ways(plan.links, plan.faults), at, {"cell-0": "c", "cell-1": "a"}) == {
        "cell-0": "c",
        "cell-1": "b",
    }


def test_edges_that_share_a_medium_are_placed_together() -> None:
    plan = planned(WIDE)
    edges = {node.host for node in plan.nodes if node.tier == "edge"}
    assert {*homes(plan).values()} == edges
    assert plan.placement is not None
    assert plan.placement.reasons["edge-1"] == "shares a medium with edge-0"
    assert len({node.host for node in planned(CELLS, cores=3).nodes if node.tier == "edge"}) == 2


@pytest.mark.parametrize(
    ("text", "media"),
    [(WIDE + APART, "cell-0"), (CELLS + HANDOVER + APART, "cell-0, cell-1")],
    ids=["wide", "handover"],
)
def test_links_without_a_common_host_cannot_share_a_medium(text: str, media: str) -> None:
    with pytest.raises(PlanError) as caught:
        planned(text)
    assert str(caught.value) == (
        containing("shared.cell-0", "device-0-1 (c) -> edge-0 (a), device-1-0", "edge-1", "edge-0, edge-1", "`hosts`")
    )


def test_links_of_which_each_two_have_a_common_host_may_have_none_together() -> None:
    """The links between a and b, a and c, b and c."""
    hosts = "hosts: {cloud: a, edge-0: a, edge-1: c, device-0-0: b, device-0-1: c, device-1-0: b, device-1-1: b}\n"
    with pytest.raises(PlanError, match=r"device-0-0 \(b\) -> edge-0 \(a\), \S*-1\S* \(\S\) -> \S*-1\S* \(\S\);"):
        planned(WIDE + hosts)


def test_a_placement_is_recorded_with_the_homes_of_media_if_there_are_any() -> None:
    for text, media in ((CELLS + APART, {"cell-0": "a", "cell-1": "b"}), (APART, None)):
        placement = planned(text).placement
        assert placement is not None
        assert placement.to_json().get("media") == media


def test_a_medium_adds_no_delay_and_a_link_is_refused_as_without_one() -> None:
    assert homes(planned(CELLS + APART, delay=0.004)) == {"cell-0": "a", "cell-1": "b"}
    with pytest.raises(PlanError, match=r"configured.*b takes 5 ms"):
        planned(CELLS + APART, delay=0.005)


def test_edges_that_share_a_medium_move_to_one_host_or_not_at_all() -> None:
    plan = replace(planned(WIDE), hosts=HOSTS)
    devices = {"device-0-0": "b", "device-0-1": "c", "device-1-0": "b", "device-1-1": "c"}
    at = {"cloud": "a", "edge-0": "a", "edge-1": "a", **devices}
    assert len({*moves(plan, at, ["edge-0", "edge-1"], {"b", "c"}, {}).hosts.values()}) == 1
    alone = moves(plan, at, ["edge-1"], {"b", "c"}, {})
    assert (alone.hosts, list(alone.staying)) == ({}, ["edge-1"])
    assert "links of cell-0 pass no common" in alone.staying["edge-1"]
    assert "pass no common host" in (kept_apart(plan, at | {"edge-1": "b"}, "edge-1", {}) or "")
    assert kept_apart(plan, at | {"edge-1": "b"}, "cloud", {}) is None
