from __future__ import annotations

from pathlib import Path

from orchestrator.record.writer import Record
from orchestrator.results.history import History
from orchestrator.results.presence import Stay, nodes_by_host, notes, stays
from tests.orchestrator.example_run import LOST, ROUND, SETUP, Example

STARTED = 0.4  # s: the first node of the example starts
SMALL = Example(edges=2, devices_per_edge=1, with_faults=False, hosts=2)


def test_a_host_is_there_lost_and_back(tmp_path: Path) -> None:
    with History.open(SMALL.build(tmp_path)) as history:
        found, end = stays(history), history.seconds
    lost, back = (SETUP + (round - 1) * ROUND + 0.7 for round in (4, 6))
    assert found == [
        Stay("pc-2", "there", STARTED, lost, ""),
        Stay("pc-2", "lost", lost, back, LOST),
        Stay("pc-1", "there", STARTED, end, ""),
        Stay("pc-2", "there", back, end, ""),
    ]


def test_all_hosts_are_there_again_when_a_run_is_continued(tmp_path: Path) -> None:
    run = Example(edges=2, devices_per_edge=1, with_faults=False, hosts=2, rounds_made=4, ending=None).build(tmp_path)
    record = Record.resume(run, 30.0, "killed", 4)
    for t, state, reason in ((40.0, "lost", "silent"), (45.0, "unusable", "no image"), (50.0, "lost", "silent again")):
        record.event(t, None, "host", 5, {"host": "pc-1", "state": state, "reason": reason})
    record.event(41.0, "device-0-0", "host", 5, {"host": "pc-2", "state": "lost", "reason": "a node may not say so"})
    record.outcome(60.0, {"ended": "failed"})
    record.close()
    with History.open(run) as history:
        found = [(each.host, each.state, each.start, each.end) for each in stays(history)]
    lost = SETUP + 3 * ROUND + 0.7
    assert sorted(found) == [
        ("pc-1", "lost", 40.0, 45.0),
        ("pc-1", "lost", 50.0, 60.0),
        ("pc-1", "there", STARTED, 40.0),
        ("pc-1", "unusable", 45.0, 50.0),
        ("pc-2", "lost", lost, 30.0),
        ("pc-2", "there", STARTED, lost),
        ("pc-2", "there", 30.0, 60.0),
    ]


def test_nodes_by_host_in_the_order_of_the_plan(tmp_path: Path) -> None:
    with History.open(SMALL.build(tmp_path)) as history:
        assert nodes_by_host(history) == {"pc-1": ["cloud", "edge-0", "device-0-0"], "pc-2": ["edge-1", "device-1-0"]}


def test_a_run_on_one_host_has_no_periods(tmp_path: Path) -> None:
    for name, hosts in (("none", 0), ("one", 1)):
        with History.open(Example(edges=1, rounds=1, hosts=hosts).build(tmp_path / name)) as history:
            assert (nodes_by_host(history), stays(history)) == ({}, [])


def test_notes_report_what_became_of_hosts_in_the_order_of_the_record(tmp_path: Path) -> None:
    record = Record.create(tmp_path, "{}", {})
    record.event(1.0, None, "note", None, {"text": "first"})
    record.event(2.0, None, "host", 3, {"host": "b", "state": "lost", "reason": "its agent restarted"})
    record.event(3.0, "edge-0", "note", None, {"text": "third"})
    record.close()
    with History.open(tmp_path) as history:
        assert notes(history) == ["first", "the host b is lost: its agent restarted", "third"]
