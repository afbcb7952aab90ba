from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.results.checks.registry import checks
from orchestrator.results.history import History
from tests.orchestrator.results.checks.test_registry import FAULT, Run

NAME = "participation"
BOTH = ["device-0-0", "device-0-1"]
CRASH: dict[str, Any] = FAULT | {"action": "crash", "node": "device-0-1", "at": 0.0}
REFUSED = {"peer": "device-0-1", "kind": "update", "reason": "message 'update' has no round"}


def run(directory: Path, *events: tuple[str, dict[str, Any]], counted: list[str], **plan: Any) -> Run:
    """A finished run whose edge used the updates of some of its two devices. Events at 9 s are of the edge."""
    made = Run(directory, **plan).rounds()
    for peer in BOTH:
        made.record.event(1.0, "edge-0", "joined", None, {"peer": peer})
    if counted:
        made.record.event(8.0, "edge-0", "contributed", None, {"kind": "update", "gathered": True, "peers": counted})
    for name, data in events:
        made.record.event(9.0, "edge-0", name, 1, data)
    return made.states().ended()


def waited(kind: str = "update", deadline: float = 12.0) -> tuple[str, dict[str, Any]]:
    return "unanswered", {"kind": kind, "peers": ["device-0-1"], "deadline": deadline}


def plan(deadline: float) -> dict[str, Any]:
    return {"gathering": {"quorum": 0.5, "count": None, "late": "discard", "deadlines": {"edge": deadline}}}


@pytest.mark.parametrize(
    ("events", "verdict", "words"),
    [
        ([("bad_message", REFUSED)] * 2, "fail", "device-0-1: refused 2 times: message 'update' has no round"),
        (
            [("not_finite", {"peer": "device-0-1", "kind": "update", "what": "w"})],
            "fail",
            "device-0-1: left out 1 time: NaN or an infinity in its update",
        ),
        (
            [("lost", {"peer": "device-0-1", "reason": "silent for 8.4 s"})] * 2,
            "fail",
            "device-0-1: edge-0 lost it (silent for 8.4 s); see timeouts.lost_after",
        ),
        ([waited()] * 3, "fail", "device-0-1: no update by the automatic deadline of 12 s, 3 times"),
        ([waited(deadline=5.0)], "unknown", "device-0-1: no update by the deadline of 5 s, 1 time"),  # the algorithm's
        ([("late", {"peer": "device-0-1", "kind": "update"})], "fail", "no update by the automatic deadline of 12 s"),
        (
            [("round_abandoned", {"kind": "update", "have": 1, "need": 2, "peers": ["device-0-1"]})],
            "unknown",
            "device-0-1: it answered in 1 round, and too few others did",
        ),
        (
            [waited(), ("unreceived", {"kind": "updates", "peers": ["device-0-1"]})],
            "fail",
            "device-0-1: edge-0 waited for no messages of kind 'updates'; "
            "messages of kind 'updates' arrived at edge-0 from device-0-1 and were never received",
        ),
    ],
)
def test_a_client_that_never_counted_is_named_with_the_reason(
    tmp_path: Path, events: list[tuple[str, dict[str, Any]]], verdict: str, words: str
) -> None:
    found = run(tmp_path, *events, counted=["device-0-0"], **plan(12.0)).verdict(NAME)
    assert found[0] == verdict
    assert found[1].startswith("1 of 2 clients contributed to no round. ")
    assert words in found[1]


def test_a_deadline_of_the_scenario_may_be_meant_to_cut_clients_off(tmp_path: Path) -> None:
    made = run(tmp_path, waited(), counted=["device-0-0"], **plan(12.0))
    (tmp_path / "effective.json").write_text('{"gathering": {"deadline": "12s"}}')
    assert made.verdict(NAME)[0] == "unknown"


def test_one_round_is_enough(tmp_path: Path) -> None:
    found = run(tmp_path, ("bad_message", REFUSED), waited(), counted=BOTH, **plan(12.0)).verdict(NAME)
    assert found == ("pass", "all of 2 clients contributed")


def test_each_kind_of_message_counts_for_itself(tmp_path: Path) -> None:
    """Keys were exchanged with both, and masked updates came of one of them only."""
    events = [("contributed", {"kind": "masked", "gathered": True, "peers": ["device-0-0"]}), waited("masked")]
    found = run(tmp_path, *events, counted=BOTH, **plan(12.0)).verdict(NAME)
    assert found[0] == "fail"
    assert "device-0-1: no masked by" in found[1]


@pytest.mark.parametrize(("end", "verdict"), [(None, "pass"), (8.0, "pass"), (0.5, "fail")])
def test_planned_faults_excuse_who_does_not_answer(tmp_path: Path, end: float | None, verdict: str) -> None:
    """The edge waited from 5 s to 9 s."""
    made = run(tmp_path, waited(deadline=4.0), counted=["device-0-0"], faults=[CRASH], **plan(4.0))
    made.record.fault(0.1, 1, "crash", "device-0-1", "start", None)
    if end is not None:
        made.record.fault(end, 1, "crash", "device-0-1", "end", None)
    found = made.verdict(NAME)
    assert found[0] == verdict
    if verdict == "pass":
        assert found[1] == "1 of 2 clients contributed; 1 was away as planned or not selected"


def test_who_was_never_asked_is_no_fault(tmp_path: Path) -> None:
    assert run(tmp_path, counted=["device-0-0"]).verdict(NAME)[0] == "pass"


def test_an_asynchronous_server_may_end_before_a_slow_client(tmp_path: Path) -> None:
    received = ("contributed", {"kind": "update", "gathered": False, "peers": ["device-0-0"]})
    found = run(tmp_path, received, counted=[]).verdict(NAME)
    assert found[0] == "unknown"
    assert "device-0-1: edge-0 received no update of it before the run ended" in found[1]


def test_a_client_that_never_connected(tmp_path: Path) -> None:
    made = Run(tmp_path).rounds()
    made.record.event(1.0, "edge-0", "joined", None, {"peer": "device-0-0"})
    made.record.event(8.0, "edge-0", "contributed", None, {"kind": "update", "gathered": True, "peers": BOTH[:1]})
    found = made.states().ended().verdict(NAME)
    assert found == ("unknown", "1 of 2 clients contributed to no round. device-0-1: it never connected to edge-0")


def test_records_of_earlier_versions_have_no_such_check(tmp_path: Path) -> None:
    made = run(tmp_path, ("round_abandoned", {"kind": "update", "have": 1, "need": 2}), counted=[])
    made.record.close()
    assert NAME not in {check["name"] for check in checks(History.open(made.directory))}
