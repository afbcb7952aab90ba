from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from node.assignment import (
    Assignment,
    DataAssignment,
    Gathering,
    Hardware,
    Keypair,
    PeerAddress,
    Stop,
    Target,
    Timeouts,
    derive_seed,
)
from node.errors import AssignmentError

CLOUD = PeerAddress(name="cloud", tier="cloud", relation="parent", host="10.0.0.1", port=7000, public_key="p" * 40)
DEVICE = PeerAddress(name="device-1", tier="device", relation="child", host="10.0.0.3", port=7000, public_key="d" * 40)

ASSIGNMENT = Assignment(
    run="demo-1",
    node="edge-0",
    tier="edge",
    index=2,
    seed=7,
    host="10.0.0.2",
    port=7000,
    keys=Keypair(public="k" * 40, secret="s" * 40),
    control_endpoint="ipc:///run/control",
    control_key="c" * 40,
    peers=(CLOUD, DEVICE),
    algorithm="hierfavg",
    params={"kappa1": 5, "kappa2": 2},
    model="cnn",
    data=DataAssignment(dataset="mnist", directory="/data", shards="/run/shards.npz", own_test_key="edge-0/test"),
    hardware=Hardware(speed=0.25, cores=4.0, memory=1 << 30),
    gathering=Gathering(quorum=0.5, deadline=30.0, late="keep"),
    timeouts=Timeouts(beat=0.5),
    stop=Stop(rounds=20, accuracy=0.85, target=Target(name="mae", at_most=0.5)),
    checkpoint_directory="/run/checkpoints",
    leads=False,
)


def changed(**values: Any) -> str:
    return json.dumps(json.loads(ASSIGNMENT.to_json()) | values)


def test_it_survives_json() -> None:
    assert Assignment.from_json(ASSIGNMENT.to_json()) == ASSIGNMENT


def test_what_may_be_left_out_has_defaults() -> None:
    given = json.loads(ASSIGNMENT.to_json())
    for name in ("params", "model_params", "hardware", "gathering", "timeouts", "profile"):
        del given[name]
    expected = replace(
        ASSIGNMENT, params={}, hardware=Hardware(), gathering=Gathering(), timeouts=Timeouts(), profile="fixed"
    )
    assert Assignment.from_json(json.dumps(given)) == expected


def test_whole_numbers_are_fine_where_fractions_are_allowed() -> None:
    assert Assignment.from_json(changed(timeouts={"beat": 1})).timeouts.beat == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "assignment: not JSON"),
        ("[]", "assignment: expected dict, got []"),
        (changed(node=3), "assignment.node: expected str, got 3"),
        (changed(index=True), "assignment.index: expected int, got True"),
        (changed(tier="fog"), "assignment.tier: 'fog' is none of 'cloud'"),
        (changed(colour="red"), "assignment.colour: unknown field"),
        (changed(stop={"accuracy": 0.5}), "assignment.stop.rounds: missing"),
        (changed(stop={"rounds": 1, "accuracy": "high"}), "assignment.stop.accuracy: expected float, got 'high'"),
        (changed(peers=[{"name": "x"}]), "assignment.peers[0].tier: missing"),
    ],
)
def test_a_wrong_one_is_refused_by_field(text: str, message: str) -> None:
    with pytest.raises(AssignmentError) as error:
        Assignment.from_json(text)
    assert str(error.value).startswith(message)


def test_load_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(AssignmentError, match=r"absent\.json.*read \(No such file"):
        Assignment.load(tmp_path / "absent.json")
    (tmp_path / "node.json").write_text("{}")
    with pytest.raises(AssignmentError, match=r"node\.json: assignment\.run: missing"):
        Assignment.load(tmp_path / "node.json")


def test_what_ends_a_run() -> None:
    stop = Stop(rounds=9, accuracy=0.8, target=Target(name="mae", at_most=0.5))
    reported = ({"accuracy": 0.8}, {"accuracy": 0.7}, {"accuracy": 1.1}, {"mae": 0.5}, {"mae": 0.6}, {"mae": math.nan})
    found = [stop.reached({"scope": "global"} | values) for values in reported]
    assert found == ["accuracy", None, None, "target", None, None]
    assert stop.reached({"scope": "own", "mae": 0.1}) is None


def test_peers_by_relation() -> None:
    assert ASSIGNMENT.related("parent") == ("cloud",)
    assert ASSIGNMENT.related("child") == ("device-1",)
    assert ASSIGNMENT.related("neighbour") == ()


def test_seeds_differ_by_purpose_and_never_change() -> None:
    # printf '7\0edge-0\0batches' | sha256sum begins with cb7795e196df8d30; a shift by one bit leaves 63.
    assert derive_seed(7, "edge-0", "batches") == 0xCB7795E196DF8D30 >> 1
    seeds = {derive_seed(seed, *names) for seed in (7, 8) for names in (("a", "b"), ("ab",), ("b", "a"), ("a",))}
    assert len(seeds) == 8
    assert all(0 <= seed < 1 << 63 for seed in seeds)


@pytest.mark.parametrize(("quorum", "count"), [(None, None), (0.5, 2)])
def test_a_gathering_has_either_a_quorum_or_a_count(quorum: float | None, count: int | None) -> None:
    with pytest.raises(ValueError, match="either a quorum or a count"):
        Gathering(quorum=quorum, count=count)


def test_a_device_that_moves_has_another_parent_and_is_away_from_the_former() -> None:
    edge = PeerAddress(name="edge-0", tier="edge", relation="parent", host="", port=1, public_key="")
    edges = edge, replace(edge, name="edge-1", relation="elsewhere")
    device = replace(ASSIGNMENT, node="device-1", tier="device", peers=edges)
    assert [peer.name for peer in device.in_place.peers] == ["edge-0"]
    moved = device.after_move("device-1", "edge-1")
    assert [peer.name for peer in moved.in_place.peers] == ["edge-1"]
    assert (moved.related("parent"), moved.related("elsewhere")) == (("edge-1",), ("edge-0",))
    former = ASSIGNMENT.after_move("device-1", "edge-1")  # that of edge-0
    assert {peer.name: peer.away for peer in former.peers} == {"cloud": False, "device-1": True}
    assert former.after_move("device-1", "edge-0") == ASSIGNMENT
    assert device.after_move("device-2", "edge-1") == device
