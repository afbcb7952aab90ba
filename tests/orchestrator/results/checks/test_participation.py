from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.record.rows import POPULATION
from orchestrator.results.checks.registry import checks
from orchestrator.results.history import History
from tests.orchestrator.results.checks.test_registry import FAULT, Run
from tests.texts import containing

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
        ([("bad_message", REFUSED)] * 2, "fail", "device-0-1: refused 2 times: message 'update'"),
        (
            [("not_finite", {"peer": "device-0-1", "kind": "update", "what": "w"})],
            "fail",
            "device-0-1: left out 1 time: NaN",
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
            "device-0-1: it answered in 1 round",
        ),
        (
            [waited(), ("unreceived", {"kind": "updates", "peers": ["device-0-1"]})],
            "fail",
            "device-0-1: edge-0 waited for no messages",
        ),
    ],
)
def test_a_client_that_never_counted_is_named_with_the_reason(
    tmp_path: Path, events: list[tuple[str, dict[str, Any]]], verdict: str, words: str
) -> None:
    found = run(tmp_path, *events, counted=["device-0-0"], **plan(12.0)).verdict(NAME)
    assert found[0] == verdict
    assert found[1] == containing("1 of 2 clients contributed")
    assert words in found[1]


REASONS: list[tuple[str, dict[str, Any], str]] = [  # in the order in which they are shown
    ("bad_message", REFUSED, "refused"),
    ("not_finite", {"peer": "device-0-1", "kind": "update", "what": "w"}, "left out"),
    ("unreceived", {"kind": "updates", "peers": ["device-0-1"]}, "edge-0 waited for no messages"),
    ("unanswered", {"kind": "update", "peers": ["device-0-1"], "deadline": 12.0}, "no update by"),
    ("late", {"peer": "device-0-1", "kind": "update"}, "no update by"),
    ("round_abandoned", {"kind": "update", "have": 1, "need": 2, "peers": ["device-0-1"]}, "it answered in"),
]


@pytest.mark.parametrize("first", range(len(REASONS)))
def test_the_first_of_several_reasons_is_shown(tmp_path: Path, first: int) -> None:
    events = [(name, data) for name, data, _ in REASONS[first:]]
    detail = run(tmp_path, *reversed(events), counted=["device-0-0"], **plan(12.0)).verdict(NAME)[1]
    assert f"to no round. device-0-1: {REASONS[first][2]}" in detail


def test_one_client_that_was_refused_fails_the_check(tmp_path: Path) -> None:
    """A deadline of the algorithm cut off the other one."""
    cut_off = ("unanswered", {"kind": "update", "peers": ["device-0-0"], "deadline": 5.0})
    verdict, detail = run(tmp_path, ("bad_message", REFUSED), cut_off, counted=[], **plan(12.0)).verdict(NAME)
    assert verdict == "fail"
    assert detail == containing("2 of 2 clients", "no round. device-0-1: refused")


def test_messages_that_no_role_received_are_counted_by_sender(tmp_path: Path) -> None:
    found = run(tmp_path, ("unreceived", {"kind": "updates", "peers": BOTH}), counted=BOTH).verdict(NAME)
    assert "arrived at edge-0 from 2 nodes" in found[1]


def test_a_deadline_is_automatic_only_if_the_plan_has_it(tmp_path: Path) -> None:
    of_cloud: dict[str, Any] = {"gathering": {"deadlines": {"cloud": 12.0}}}
    assert run(tmp_path, waited(deadline=1.0), counted=["device-0-0"], **of_cloud).verdict(NAME)[0] == "unknown"


def test_a_deadline_of_the_scenario_may_be_meant_to_cut_clients_off(tmp_path: Path) -> None:
    made = run(tmp_path, waited(), counted=["device-0-0"], **plan(12.0))
    (tmp_path / "effective.json").write_text('{"gathering": {"deadline": "12s"}}')
    assert made.verdict(NAME)[0] == "unknown"


def test_one_round_is_enough(tmp_path: Path) -> None:
    """However many messages of the kind, without a kind, or of a kind that no role waits for came to nothing."""
    unknown = {"peer": "device-0-1", "reason": "no kind"}
    extra = ("unreceived", {"kind": "updates", "peers": ["device-0-1"]})
    events = [("bad_message", REFUSED), ("bad_message", unknown), waited(), extra]
    verdict, detail = run(tmp_path, *events, counted=BOTH, **plan(12.0)).verdict(NAME)
    assert verdict == "pass"
    assert detail.startswith("all of 2 clients contributed")


def test_each_kind_of_message_counts_for_itself(tmp_path: Path) -> None:
    """Keys were exchanged with both, and masked updates came of one of them only."""
    events = [("contributed", {"kind": "masked", "gathered": True, "peers": ["device-0-0"]}), waited("masked")]
    found = run(tmp_path, *events, counted=BOTH, **plan(12.0)).verdict(NAME)
    assert found[0] == "fail"
    assert "device-0-1: no masked by" in found[1]


@pytest.mark.parametrize(
    ("start", "end", "verdict"),
    [
        (0.1, None, "pass"),
        (0.1, 5.0, "pass"),
        (0.1, 4.9, "fail"),
        (9.0, None, "pass"),
        (9.1, None, "fail"),
    ],
)
def test_planned_faults_excuse_who_does_not_answer(
    tmp_path: Path, start: float, end: float | None, verdict: str
) -> None:
    """The edge waited from 5 s to 9 s."""
    made = run(tmp_path, waited(deadline=4.0), counted=["device-0-0"], faults=[CRASH], **plan(4.0))
    made.record.fault(start, 1, "crash", "device-0-1", "start", None)
    if end is not None:
        made.record.fault(end, 1, "crash", "device-0-1", "end", None)
    found = made.verdict(NAME)
    assert found[0] == verdict
    if verdict == "pass":
        assert found[1] == containing("1 of 2 clients contributed; 1")


def test_who_was_never_asked_is_no_fault(tmp_path: Path) -> None:
    assert run(tmp_path, counted=["device-0-0"]).verdict(NAME)[0] == "pass"


def test_an_asynchronous_server_may_end_before_a_slow_client(tmp_path: Path) -> None:
    received = ("contributed", {"kind": "update", "gathered": False, "peers": ["device-0-0"]})
    found = run(tmp_path, received, counted=[]).verdict(NAME)
    assert found[0] == "unknown"
    assert "device-0-1: edge-0 received no update" in found[1]


def test_a_client_that_never_connected(tmp_path: Path) -> None:
    made = Run(tmp_path).rounds()
    made.record.event(1.0, "edge-0", "joined", None, {"peer": "device-0-0"})
    made.record.event(8.0, "edge-0", "contributed", None, {"kind": "update", "gathered": True, "peers": BOTH[:1]})
    found = made.states().ended().verdict(NAME)
    assert found == ("unknown", containing("1 of 2 clients", "to no round. device-0-1", "edge-0"))


def test_records_of_earlier_versions_have_no_such_check(tmp_path: Path) -> None:
    made = run(tmp_path, ("round_abandoned", {"kind": "update", "have": 1, "need": 2}), counted=[])
    made.record.close()
    assert NAME not in {check["name"] for check in checks(History.open(made.directory))}


def test_a_run_that_never_trained_has_no_such_check(tmp_path: Path) -> None:
    made = Run(tmp_path, trained=False)
    name, data = waited()
    made.record.event(9.0, "edge-0", name, 1, data)
    made.record.close()
    assert NAME not in {check["name"] for check in checks(History.open(tmp_path))}


def population(directory: Path, *outcomes: str) -> Run:
    """A finished run with 5 clients, of which the first ones took part with these outcomes."""
    made = Run(directory, population={"size": 5}).rounds()
    for number, outcome in enumerate(outcomes):
        data = {"client": f"client-{number}", "outcome": outcome, "began": 0.0, "seconds": 2.0, "link": "lte"}
        made.record.event(9.0, POPULATION, "client", 1, data)
    return made.states().ended()


def refuse(made: Run, client: str) -> None:
    made.record.event(9.0, "cloud", "not_finite", 1, {"peer": client, "kind": "update", "what": "w"})
    made.record.event(9.0, "cloud", "bad_message", 1, {"peer": client, "kind": "update", "reason": "too large"})


def test_clients_of_a_population_contribute_if_one_of_their_answers_counts(tmp_path: Path) -> None:
    """What is refused of a client that counted, or that was not selected, is no reason."""
    made = population(tmp_path, "counted", "counted", "slow")
    refuse(made, "client-0")
    refuse(made, "client-4")
    verdict, detail = made.verdict(NAME)
    assert verdict == "pass"
    assert detail.startswith("2 of 5 clients contributed; ")


@pytest.mark.parametrize("others", ["counted", "slow"])
def test_a_client_of_a_population_that_was_refused_fails(tmp_path: Path, others: str) -> None:
    made = population(tmp_path, others, others, "unused")
    refuse(made, "client-2")
    verdict, detail = made.verdict(NAME)
    assert verdict == "fail"
    assert detail == containing("1 of 5 clients", "client-2: refused 1 time")


def test_a_population_without_an_answer_that_counted_is_unknown(tmp_path: Path) -> None:
    verdict, detail = population(tmp_path, "slow", "slow", "away").verdict(NAME)
    assert verdict == "unknown"
    assert detail.endswith("no answer counted: 2 slow, 1 away")


def test_a_population_without_selected_clients_has_no_such_check(tmp_path: Path) -> None:
    with pytest.raises(StopIteration):
        population(tmp_path).verdict(NAME)
