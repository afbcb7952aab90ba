"""What each node is told."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path

import pytest

from node.assignment import PLACE, Assignment, Gathering, PluginSource, Stop
from orchestrator.errors import RunError
from orchestrator.planning.assignments import assignments, handed_out, readdressed, seen_from_inside
from orchestrator.planning.keys import RunKeys
from orchestrator.planning.making import make_plan
from orchestrator.record.directory import RunDirectory
from orchestrator.scenario.reading import parse
from tests.orchestrator.labels import prepared

TEXT = """\
algorithm: {name: hierfavg, rounds: 4}
topology: {edges: 2, devices_per_edge: 2}
links: {edge-edge: lan}
hardware: {device: raspberry-pi-4}
gathering: {quorum: 75%, deadline: 5s, late: keep}
stop: {accuracy: 80%}
"""


def told(text: str = TEXT) -> tuple[dict[str, Assignment], RunKeys]:
    plan = make_plan(parse(text, "f.yaml"), prepared())
    keys = RunKeys.make([node.name for node in plan.nodes])
    return assignments(plan, RunDirectory(Path("/runs/small-1")), keys, "ipc:///runs/small-1/control/socket"), keys


def test_every_node_knows_its_peers_and_their_keys() -> None:
    made, keys = told()
    assert len(made) == 7
    edge = made["edge-0"]
    assert edge.related("parent") == ("cloud",)
    assert edge.related("child") == ("device-0-0", "device-0-1")
    assert edge.related("neighbour") == ("edge-1",)
    assert {peer.name: peer.public_key for peer in edge.peers}["cloud"] == keys.nodes["cloud"].public
    assert edge.peers[0].host == "10.77.0.1"
    assert edge.keys == keys.nodes["edge-0"]
    assert edge.control_key == keys.orchestrator.public


def test_peers_that_join_later_are_marked() -> None:
    made, _ = told(TEXT + "faults: [{round: 2, node: device-0-1, action: join}]\n")
    late = {peer.name: peer.late for peer in made["edge-0"].peers}
    assert late == {"cloud": False, "device-0-0": False, "device-0-1": True, "edge-1": False}


def test_a_device_that_moves_is_away_from_the_edge_that_it_will_visit() -> None:
    made, _ = told(TEXT + "faults: [{at: 9s, node: device-0-1, action: move, to: edge-1}]\n")
    away = {peer.name: peer.away for peer in made["edge-1"].peers if peer.relation == "child"}
    assert away == {"device-1-0": False, "device-1-1": False, "device-0-1": True}
    assert not any(peer.away for peer in made["edge-0"].peers)
    relations = {peer.name: (peer.relation, peer.away) for peer in made["device-0-1"].peers}
    assert relations == {"edge-0": ("parent", False), "edge-1": ("elsewhere", False)}


def test_a_node_and_its_peers_learn_its_new_address() -> None:
    made, _ = told()
    moved, edge, other = (
        readdressed(made[name], "device-0-1", "10.77.9.9") for name in ("device-0-1", "edge-0", "cloud")
    )
    assert moved.host == "10.77.9.9"
    assert [peer.name for peer in edge.peers if peer.host == "10.77.9.9"] == ["device-0-1"]
    assert len(edge.peers) == len(made["edge-0"].peers)
    assert edge.host == made["edge-0"].host
    assert other == made["cloud"]  # it is no peer


def test_plugins_are_read_from_their_copies_inside_a_node() -> None:
    plugin = PluginSource("mine", "mine", "/home/ada/mine.py", "0" * 64)
    inside = seen_from_inside(replace(told()[0]["cloud"], plugins=(plugin,)))
    assert [copy.root for copy in inside.plugins] == [str(PLACE / "plugins" / "mine.py")]


def test_data_is_announced_to_those_who_have_some() -> None:
    made, _ = told()
    device, edge, cloud = (made[name].data for name in ("device-0-0", "edge-0", "cloud"))
    assert (device.train_key, device.own_test_key) == ("device-0-0.train", "device-0-0.test")
    assert not device.global_test
    assert (edge.train_key, edge.own_test_key, edge.global_test) == (None, "edge-0.test", False)
    assert (cloud.train_key, cloud.own_test_key, cloud.global_test) == (None, None, True)
    assert device.directory == "/prepared/digits"
    assert device.shards == "/runs/small-1/shards.npz"


def test_leading_edges_see_the_global_test_set() -> None:
    made, _ = told("algorithm: onlyedge\ntopology: {cloud: false}")
    assert made["edge-1"].data.global_test
    assert made["edge-1"].leads


def test_a_quorum_may_be_a_number_of_peers() -> None:
    made, _ = told(TEXT.replace("75%", "2"))
    assert made["edge-0"].gathering == Gathering(quorum=None, count=2, deadline=5.0, late="keep")
    assert Assignment.from_json(made["edge-0"].to_json()) == made["edge-0"]


def test_rules_are_those_of_the_tier() -> None:
    made, _ = told()
    assert made["edge-0"].gathering == Gathering(quorum=0.75, deadline=5.0, late="keep")
    assert made["cloud"].gathering.deadline == 21.0  # 10 s, kappa2 = 2 edge rounds of 5 s, and the links
    assert made["device-0-0"].gathering.deadline == 21.0  # the longest, for tiers that do not gather in every algorithm
    assert made["cloud"].stop == Stop(rounds=4, accuracy=0.8)
    assert made["device-0-0"].hardware.speed == 0.16


def test_assignments_survive_the_way_through_json() -> None:
    for assignment in told()[0].values():
        assert Assignment.from_json(assignment.to_json()) == assignment


def test_an_assignment_is_a_file_only_while_its_node_starts(tmp_path: Path) -> None:
    assignment = seen_from_inside(told()[0]["edge-0"])
    path = tmp_path / "edge-0.json"
    for _ in range(2):  # a restarted node is handed it again
        with handed_out(assignment, path) as file:
            assert Assignment.load(file) == assignment
            assert file.stat().st_mode & 0o077 == 0  # it holds the node's secret key
        assert not path.exists()
    with pytest.raises(RuntimeError), handed_out(assignment, path):
        raise RuntimeError("the node did not start")
    assert not path.exists()


def test_a_directory_that_is_gone_is_reported_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "nodes" / "edge-0.json"
    said = f"edge-0 cannot be started: .*{path}"
    with pytest.raises(RunError, match=said), handed_out(told()[0]["edge-0"], path):
        raise AssertionError


def test_a_full_disk_leaves_no_part_of_a_key(tmp_path: Path) -> None:
    path = tmp_path / "edge-0.json"
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limit[1]))  # bytes of a file, as if the disk were full then
    try:
        with pytest.raises(RunError, match="cannot be written"), handed_out(told()[0]["edge-0"], path):
            raise AssertionError
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert not path.exists()


def test_nodes_that_read_no_file_are_handed_none(tmp_path: Path) -> None:
    with handed_out(None, tmp_path / "edge-0.json") as file:
        assert not file.exists()
