"""What a fault did, from records that are written here: the fault lasts from 10 to 20 s, the training from 0 s."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.limits.fault_effects import Direction, Effects, effects
from orchestrator.record.events.nodes import Lost, ProgramEnded, RoundReached
from orchestrator.record.events.run import Training
from orchestrator.record.writer import Record
from orchestrator.results.history import History

CLIENT = "device-1"
SERVER = "cloud"
PLAN: dict[str, Any] = {
    "name": "service",
    "driver": "namespaces",
    "nodes": [
        {"name": SERVER, "tier": "cloud", "leads": True},
        {"name": "device-0", "tier": "device"},
        {"name": CLIENT, "tier": "device"},
    ],
    "faults": [{"id": 1, "action": "disconnect", "node": CLIENT, "event": "fault may begin"}],
    "programs": [{"label": SERVER, "node": SERVER}, {"label": CLIENT, "node": CLIENT}],
    "links": [],
    "stop": {},
}


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    record = Record.create(tmp_path, json.dumps(PLAN), {})
    record.add_event(0.0, Training())
    yield record
    record.close()


def fault(record: Record) -> None:
    record.fault(10.0, 1, "disconnect", CLIENT, "start", None)
    record.fault(20.0, 1, "disconnect", CLIENT, "end", None)


def message(record: Record, number: str, sender: str, sent: float, *arrived: float) -> None:
    """A message of one side to the other."""
    receiver = SERVER if sender == CLIENT else CLIENT
    record.event(sent, sender, "message sent", None, {"number": number})
    for t in arrived:
        record.event(t, receiver, "message received", None, {"number": number})


def round_of(record: Record, number: int, start: float, end: float | None, value: float | None = None) -> None:
    record.event(start, SERVER, RoundReached.NAME, number, {"phase": "start"})
    if value is not None and end is not None:
        record.metric(end, SERVER, number, "global", "value", value)
    if end is not None:
        record.event(end, SERVER, RoundReached.NAME, number, {"phase": "end"})


def read(record: Record, ended: float = 100.0) -> Effects:
    record.state(ended, SERVER, "done")
    record.flush()
    return effects(History.open(record.directory), CLIENT, SERVER)


def test_messages_that_are_lost_that_arrive_twice_and_the_first_after_the_fault(record: Record) -> None:
    fault(record)
    message(record, "before", CLIENT, 5.0)
    message(record, "lost", CLIENT, 12.0)
    message(record, "late", CLIENT, 13.0, 31.0)
    message(record, "next", CLIENT, 21.0, 23.5, 23.6)
    message(record, "under way", CLIENT, 99.0)
    message(record, "down", SERVER, 15.0)
    of_run = read(record)
    assert of_run.up == Direction(sent=4, lost=1, twice=1, back=3.5)
    assert of_run.down == Direction(sent=1, lost=1, twice=0, back=None)


def test_who_notices_and_when(record: Record) -> None:
    fault(record)
    record.event(8.0, SERVER, "peer lost", None, {"reason": "of something else"})
    record.event(14.0, SERVER, "peer lost", None, {"reason": "timeout"})
    record.add_event(15.5, Lost(SERVER, "silent"), node=CLIENT)
    assert read(record).noticed == {SERVER: 4.0, CLIENT: 5.5}


@pytest.mark.parametrize(
    ("growth", "counted"),
    [(1.5, "all"), (1.0, "healthy only"), (2.0, "faulty only"), (1.75, "a mean of 1.75")],
)
def test_whose_work_counts_from_the_weights(record: Record, growth: float, counted: str) -> None:
    fault(record)
    round_of(record, 1, 0.0, 6.0, 1.5)
    round_of(record, 2, 6.0, 25.0, 1.5 + growth)
    of_run = read(record)
    assert (of_run.closed, of_run.counted) == (15.0, counted)


def arrived(record: Record, node: str, peer: str, kind: str, *times: float) -> None:
    """Messages that have arrived at a node by these times."""
    for number, t in enumerate(times, start=1):
        row = {"peer": peer, "kind": kind, "direction": "received", "messages": number, "bytes": 100 * number}
        record.traffic(t, node, [row])


def test_whose_work_counts_from_the_updates_of_a_round(record: Record) -> None:
    fault(record)
    round_of(record, 1, 0.0, 6.0)
    round_of(record, 2, 6.0, 25.0)
    arrived(record, SERVER, "device-0", "update", 6.4, 24.8, 40.0)
    arrived(record, SERVER, CLIENT, "update", 6.4, 40.0)
    assert read(record).counted == "healthy only"


def test_a_node_of_edgebed_trains_again_with_the_next_model(record: Record) -> None:
    fault(record)
    round_of(record, 1, 0.0, 40.0)
    arrived(record, CLIENT, SERVER, "model", 1.0, 23.5, 50.0)
    assert read(record).trains_again == 13.5


def test_a_round_that_a_restart_of_the_server_repeats(record: Record) -> None:
    fault(record)
    round_of(record, 1, 0.0, None)
    round_of(record, 1, 21.0, 40.0)
    assert read(record).closed == 30.0


def test_a_round_that_does_not_end(record: Record) -> None:
    fault(record)
    round_of(record, 1, 0.0, None)
    of_run = read(record)
    assert (of_run.closed, of_run.finished, of_run.watched) == (None, None, 90.0)


def test_a_run_that_fails(record: Record) -> None:
    fault(record)
    round_of(record, 1, 0.0, None)
    record.outcome(70.0, {"ended": "failed", "error": "the job ended", "wall_seconds": 70.0})
    of_run = read(record)
    assert (of_run.finished, of_run.failed) == (None, 60.0)


def test_the_client_trains_again(record: Record) -> None:
    fault(record)
    record.event(9.0, CLIENT, "training started", 2, {})
    record.event(33.0, "device-0", "training started", 3, {})
    record.event(34.0, CLIENT, "training started", 3, {})
    assert read(record).trains_again == 24.0


def test_programs_that_end_early(record: Record) -> None:
    fault(record)
    record.add_event(40.0, ProgramEnded(CLIENT, 0), node=CLIENT)
    record.add_event(10.1, ProgramEnded(SERVER, -9), node=SERVER)  # killed by the fault
    assert read(record).exits == {CLIENT: "exit code 0"}


def test_a_fault_that_did_not_start(record: Record) -> None:
    assert not read(record).began
