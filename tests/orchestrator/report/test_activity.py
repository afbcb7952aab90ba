"""What nodes did, from records written by hand. Training begins at 10 s of the record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.record.writer import Record
from orchestrator.report import activity
from orchestrator.report.activity import Stretch, activities, course, divided
from orchestrator.results.history import History
from tests.orchestrator.example_run import Example, plan_of

BEGAN = 10.0


def test_time_is_divided_into_rounds_and_waiting() -> None:
    assert divided(1.0, 9.0, [(0.0, 2.0), (4.0, 5.0), (5.0, 6.0), (8.0, 20.0)]) == [
        Stretch(1.0, 2.0, "in a round"),
        Stretch(2.0, 4.0, "waiting"),
        Stretch(4.0, 5.0, "in a round"),
        Stretch(5.0, 6.0, "in a round"),
        Stretch(6.0, 8.0, "waiting"),
        Stretch(8.0, 9.0, "in a round"),
    ]
    assert divided(3.0, 4.0, [(0.0, 1.0)]) == [Stretch(3.0, 4.0, "waiting")]


def recorded(directory: Path, *, rounds: bool = True, reports: bool = True) -> History:
    """A cloud, an edge and a device. The edge has two rounds with its device in the cloud's round 1, and one of round 2
    that does not end; the device reports at the end of each round, and is disconnected from 15 s to 17 s."""
    plan = plan_of(Example(edges=1, devices_per_edge=1, with_faults=False))
    links = [["device-0-0", "edge-0"], ["edge-0", "device-0-0"]]
    plan["faults"] = [{"id": 1, "action": "disconnect", "node": "device-0-0", "round": 2, "links": links}]
    record = Record.create(directory, json.dumps(plan), {})
    for node in ("cloud", "edge-0", "device-0-0"):
        record.state(0.0, node, "starting")
        record.state(BEGAN, node, "running")
        record.state(20.0, node, "done")
    record.event(BEGAN, None, "training", None, {})
    for t, node, number, edge_round, phase in (
        *((10.0, "cloud", 1, None, "start"), (14.0, "cloud", 1, None, "end"), (14.0, "cloud", 2, None, "start")),
        *((11.0, "edge-0", 1, 1, "start"), (12.0, "edge-0", 1, 1, "end")),
        *((12.0, "edge-0", 1, 2, "start"), (13.5, "edge-0", 1, 2, "end"), (15.0, "edge-0", 2, 3, "start")),
    ):
        if rounds:
            record.event(t, node, "round", number, {"phase": phase, "edge_round": edge_round})
    for t, number in ((13.0, 1), (18.0, 2)):
        if reports:
            record.metric(t, "device-0-0", number, "train", "loss", 1.0)
    record.fault(15.0, 1, "disconnect", "device-0-0", "start", 2)
    record.fault(17.0, 1, "disconnect", "device-0-0", "end", 2)
    record.outcome(20.0, {"ended": "rounds"})
    record.close()
    return History.open(directory)


def test_a_device_is_in_a_round_until_it_reports_its_training(tmp_path: Path) -> None:
    found = activities(recorded(tmp_path))
    assert [each[:3] for each in found["device-0-0"]] == [
        (0.0, 10.0, "starting"),
        (10.0, 11.0, "waiting"),
        (11.0, 13.0, "in a round"),  # both rounds of the edge
        (13.0, 15.0, "waiting"),
        (15.0, 18.0, "in a round"),
        (18.0, 20.0, "waiting"),
        (20.0, 20.0, "done"),
    ]
    assert [each[:3] for each in found["edge-0"]][2:5] == [
        (11.0, 12.0, "in a round"),
        (12.0, 13.5, "in a round"),
        (13.5, 15.0, "waiting"),
    ]


def test_without_reports_a_device_is_in_the_rounds_of_its_edge(tmp_path: Path) -> None:
    found = activities(recorded(tmp_path, reports=False))
    assert found["device-0-0"][1:] == found["edge-0"][1:]


def test_without_rounds_nodes_are_only_running(tmp_path: Path) -> None:
    assert [each.what for each in activities(recorded(tmp_path, rounds=False))["edge-0"]] == [
        "starting",
        "running",
        "done",
    ]


def test_of_very_many_rounds_the_page_keeps_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "MOST", 6)  # the cloud's two, the edge's three, the device's two
    assert {each.what for of in activities(recorded(tmp_path)).values() for each in of} == {
        "starting",
        "running",
        "done",
    }


def test_the_course_of_the_picture(tmp_path: Path) -> None:
    told = course(recorded(tmp_path))
    assert (told["begin"], told["end"]) == (-10.0, 10.0)
    assert told["nodes"]["device-0-0"] == [
        *([-10.0, "starting"], [0.0, "waiting"], [1.0, "in a round"], [3.0, "waiting"]),
        *([5.0, "cut off"], [7.0, "in a round"], [8.0, "waiting"], [10.0, "done"]),
    ]
    assert told["links"] == [[5.0, 7.0, "device-0-0", "edge-0", "cut"]]
    assert told["rounds"] == [[0.0, "round 1"], [4.0, "round 2"]]


def test_the_course_of_nothing(tmp_path: Path) -> None:
    Record.create(tmp_path, json.dumps({"nodes": [], "links": [], "faults": []}), {}).close()
    told = course(History.open(tmp_path))
    assert (told["begin"], told["end"], told["nodes"]) == (0.0, 0.0, {})
