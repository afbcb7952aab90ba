"""The checks of nodes. Trainings last from 1 s to 20 s."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from orchestrator.record.events.nodes import KilledAtEnd
from orchestrator.record.writer import Record
from orchestrator.results.checks.nodes import compute_on_time
from orchestrator.results.checks.registry import checks
from orchestrator.results.history import History
from tests.orchestrator.example_run import Example, plan_of
from tests.orchestrator.results.checks.test_registry import FAULT, Run
from tests.texts import containing


def test_overruns_fail_and_the_worst_is_named(tmp_path: Path) -> None:
    run = Run(tmp_path).rounds()
    run.record.event(2.0, "device-0-0", "overrun", 1, {"asked": 1.0, "taken": 1.1, "mode": "train"})
    run.record.event(3.0, "device-0-1", "overrun", 1, {"asked": 1.0, "taken": 1.9, "mode": "train"})
    verdict, detail = run.ended().verdict("compute on time")
    assert verdict == "fail"
    assert detail.startswith("2 steps on 2 nodes")
    assert "latest is device-0-1, by 900 ms" in detail


def test_a_node_is_late_by_at_most_all_of_the_training(tmp_path: Path) -> None:
    """A clock that jumped by an hour makes a step an hour late."""
    run = Run(tmp_path).rounds()
    run.record.event(3.0, "device-0-1", "overrun", 1, {"asked": 1.0, "taken": 3601.0, "mode": "train"})
    assert "1 h 00 min or 100.0%" in run.ended().verdict("compute on time")[1]


@pytest.mark.parametrize(
    ("busy", "words"),
    [  # in 20 s of two processors; the orchestrator used 2 s, the node 10 s
        (14.0, "is too slow for so many"),
        (36.0, "1.2 of this host's 2 processors"),
        (None, "fast nodes, or other processes used"),
    ],
)
def test_who_made_the_steps_late(tmp_path: Path, busy: float | None, words: str) -> None:
    run = Run(tmp_path).rounds()
    run.record.event(3.0, "device-0-1", "overrun", 1, {"asked": 1.0, "taken": 1.9, "mode": "train"})
    for t, used in ((0.5, 3.0), (20.0, 13.0)):
        run.record.resources(t, "device-0-1", used, 0)
    if busy is not None:
        load = {"seconds": 20.0, "busy": busy, "idle": 40.0 - busy, "own": 2.0}
        run.record.event(21.0, None, "host load", None, load)
    assert words in run.ended().verdict("compute on time")[1]


@pytest.mark.parametrize(("taken", "expected"), [(0.88, "pass"), (0.89, "fail")])
def test_a_few_late_steps_are_reported_and_pass(tmp_path: Path, taken: float, expected: str) -> None:
    """Of a step of 0.5 s. A node may lose 2 % of 19 s, which are 0.38 s."""
    run = Run(tmp_path).rounds()
    run.record.event(2.0, "device-0-0", "overrun", 1, {"asked": 0.5, "taken": taken, "mode": "train"})
    verdict, detail = run.ended().verdict("compute on time")
    assert verdict == expected
    assert detail.startswith("1 step on 1 node")


def test_whether_a_run_that_never_trained_would_have_been_on_time_is_unknown(tmp_path: Path) -> None:
    Record.create(tmp_path, json.dumps(plan_of(Example())), {}).close()
    assert compute_on_time(History.open(tmp_path)) == ("unknown", "the training never started")


def test_a_node_that_does_not_answer_fails(tmp_path: Path) -> None:
    run = Run(tmp_path).rounds().states(device_0_1="running").ended()
    expected = containing("1 of 4 nodes", "the end: device-0-1 (running)")
    assert run.verdict("nodes responded") == ("fail", expected)


@pytest.mark.parametrize(("action", "state"), [("crash", "crashed"), ("leave", "left"), ("pause", "paused")])
def test_a_node_that_a_fault_took_away_need_not_answer(tmp_path: Path, action: str, state: str) -> None:
    fault = FAULT | {"action": action, "node": "device-0-1", "at": 2.0}
    run = Run(tmp_path, faults=[fault]).rounds().states(device_0_1=state)
    run.record.fault(3.0, 1, action, "device-0-1", "start", 1)
    assert run.ended().verdict("nodes responded") == ("pass", containing("3 of 4 nodes", "the end, 1 away"))


def test_a_node_that_never_comes_back_from_a_fault_fails(tmp_path: Path) -> None:
    fault = FAULT | {"action": "crash", "node": "device-0-1", "at": 2.0}
    run = Run(tmp_path, faults=[fault]).rounds().states(device_0_1="restarting")
    run.record.fault(3.0, 1, "crash", "device-0-1", "start", 1)
    run.record.fault(9.0, 1, "crash", "device-0-1", "end", 1)
    assert run.ended().verdict("nodes responded")[0] == "fail"


@pytest.mark.parametrize(("end", "expected"), [(21.9, "fail"), (22.0, "pass")])
def test_a_fault_that_lasts_until_the_end_keeps_a_node_from_answering(
    tmp_path: Path, end: float, expected: str
) -> None:
    """The run ended at 22 s."""
    run = Run(tmp_path, faults=[FAULT | {"action": "pause", "node": "device-0-1", "at": 2.0}]).rounds()
    run.states(device_0_1="paused")
    run.record.fault(3.0, 1, "pause", "device-0-1", "start", 1)
    run.record.fault(end, 1, "pause", "device-0-1", "end", 1)
    assert run.ended().verdict("nodes responded")[0] == expected


def test_a_fault_of_a_program_takes_no_node_away(tmp_path: Path) -> None:
    fault = FAULT | {"action": "crash", "node": "device-0-1", "program": "watcher", "at": 2.0}
    run = Run(tmp_path, faults=[fault]).rounds().states(device_0_1="running")
    run.record.fault(3.0, 1, "crash", "device-0-1", "start", 1)
    assert run.ended().verdict("nodes responded")[0] == "fail"


def test_a_program_that_had_to_be_killed_is_named_with_its_grace(tmp_path: Path) -> None:
    """Of two that were killed, one answered all the same."""
    run = Run(tmp_path).rounds().states(device_0_1="running")
    for node in ("device-0-0", "device-0-1"):
        run.record.event(21.0, node, KilledAtEnd.NAME, None, {"grace": 10.0})
    verdict, detail = run.ended().verdict("nodes responded")
    assert verdict == "fail"
    assert detail == containing("1 of 4 nodes did not")
    assert "got SIGTERM, still ran 10 s" in detail


def test_a_node_whose_time_to_join_had_not_come_need_not_answer(tmp_path: Path) -> None:
    fault = FAULT | {"action": "join", "node": "device-0-1", "at": 60.0}
    run = Run(tmp_path, faults=[fault]).rounds().states(device_0_1="planned").ended()
    assert run.verdict("nodes responded")[0] == "pass"


def test_nodes_of_a_run_that_was_cut_short_are_unknown(tmp_path: Path) -> None:
    assert Run(tmp_path).rounds(1).verdict("nodes responded")[0] == "unknown"


def test_refused_messages_fail_and_those_that_a_node_refused_are_its_own_affair(tmp_path: Path) -> None:
    run = Example().build(tmp_path)
    with contextlib.closing(sqlite3.connect(run / "run.db")) as record, record:
        rows = [
            (1.0, "edge-0", "bad_message", '{"peer": "device-0-0", "reason": "no round"}'),
            (2.0, "cloud", "bad_message", '{"reason": "the first", "count": 1}'),
            (3.0, "cloud", "bad_message", '{"reason": "the last", "count": 7}'),
        ]
        record.executemany("INSERT INTO event (t, node, name, data) VALUES (?, ?, ?, ?)", rows)
    record.close()
    (found,) = [each for each in checks(History.open(run)) if each["name"] == "messages accepted"]
    assert (found["verdict"], found["detail"].partition(": ")[2]) == ("fail", "7 of cloud, the last: the last")
