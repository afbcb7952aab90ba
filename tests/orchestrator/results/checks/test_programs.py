from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.record.events.nodes import LinesDropped, ProgramEnded
from orchestrator.results.checks.programs import asked_to_end, ended_programs
from orchestrator.results.history import History
from tests.orchestrator.results.checks.test_registry import FAULT, Run
from tests.texts import containing

FAILURES = "no unplanned failures"
CRASH: dict[str, Any] = FAULT | {"action": "crash", "node": "cloud", "at": 9.0}


def program(node: str, **settings: Any) -> dict[str, Any]:
    return {"label": node, "node": node, "command": ["serve"], "after": [], "ends_the_run": False} | settings


def run_of(folder: Path, *programs: dict[str, Any], **plan: Any) -> Run:
    """It trained from 1 s to 21 s, when all nodes were asked to end."""
    return Run(folder, programs=list(programs), **{"stop": {"after": "20s"}, **plan}).states()


def ends(run: Run, t: float, label: str, code: int = 0) -> Run:
    run.record.event(t, label, ProgramEnded.NAME, None, {"program": label, "code": code})
    return run


def test_a_program_that_ends_before_the_run_leaves_its_effect_unknown(tmp_path: Path) -> None:
    run = run_of(tmp_path, program("cloud"), program("device-0-0"))
    assert ends(run, 6.0, "device-0-0").ended("after").verdict(FAILURES) == (
        "unknown",
        containing("1 program ended before", "device-0-0 at 5.0 s", "`expected_to_end: true`"),
    )


@pytest.mark.parametrize(
    ("settings", "t", "verdict"),
    [
        ({}, 15.9, "unknown"),
        ({}, 16.0, "pass"),  # 5 s before the end at 21 s
        ({"expected_to_end": True}, 6.0, "pass"),
        ({"ends_the_run": True}, 6.0, "pass"),  # the run ends when all such programs have
    ],
)
def test_which_ends_are_early(tmp_path: Path, settings: dict[str, Any], t: float, verdict: str) -> None:
    run = run_of(tmp_path, program("cloud"), program("device-0-0", **settings))
    assert ends(run, t, "device-0-0").ended("after").verdict(FAILURES)[0] == verdict


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        (None, 5.0),  # the first answer of all
        (5.0, 5.0),
        (9.0, 20.0),  # the run was continued, so answers before count no more
    ],
)
def test_when_nodes_were_asked_to_end(tmp_path: Path, training: float | None, expected: float) -> None:
    run = Run(tmp_path, trained=training is not None)
    if training is not None:
        run.record.event(training, None, "training", None, {})
    for t in (5.0, 20.0, 22.0):
        run.record.state(t, "cloud", "done")
    run.record.close()
    assert asked_to_end(History.open(tmp_path)) == expected


def test_a_program_that_ends_early_is_unknown_while_the_run_continues(tmp_path: Path) -> None:
    run = ends(Run(tmp_path, programs=[program("device-0-0")]), 6.0, "device-0-0")
    run.record.state(12.0, "cloud", "running")
    assert run.verdict(FAILURES)[0] == "unknown"


def test_a_run_that_ends_with_all_its_programs_expects_their_ends(tmp_path: Path) -> None:
    run = run_of(tmp_path, program("cloud"), program("device-0-0"), stop={})
    assert ends(run, 6.0, "device-0-0").ended("programs").verdict(FAILURES)[0] == "pass"


def test_a_program_that_ends_the_run_does_not_excuse_the_others(tmp_path: Path) -> None:
    run = run_of(tmp_path, program("cloud", ends_the_run=True), program("device-0-0"), stop={})
    assert ends(run, 6.0, "device-0-0").ended("programs").verdict(FAILURES)[0] == "unknown"


def all_ended(folder: Path, t: float = 3.0, *, expected: bool = False, **settings: Any) -> Run:
    """Two programs ended at ``t``, of which one may be ``expected`` to. The run was to train for 20 s, from 1 s on."""
    programs = [program("cloud", expected_to_end=expected), program("device-0-0")]
    run = Run(folder, **{"programs": programs, "stop": {"after": "20s"}, **settings})
    for label in ("cloud", "device-0-0"):
        ends(run, t, label)
        run.record.state(t, label, "done")
    return run.ended("programs")


def test_programs_that_all_end_long_before_the_time_given_and_report_nothing_are_no_pass(tmp_path: Path) -> None:
    assert all_ended(tmp_path).verdict("finished") == (
        "unknown",
        containing("with exit code 0", "`stop.after` is 20 s", "`expected_to_end: true`"),
    )
    assert all_ended(tmp_path / "one expected", expected=True).verdict("finished")[0] == "unknown"


@pytest.mark.parametrize(("t", "verdict"), [(15.9, "unknown"), (16.0, "pass")])
def test_programs_may_end_five_seconds_before_the_time_given(tmp_path: Path, t: float, verdict: str) -> None:
    """The time given ends at 21 s."""
    assert all_ended(tmp_path, t).verdict("finished")[0] == verdict


@pytest.mark.parametrize(
    "settings",
    [
        {"stop": {}},
        {"trained": False},
        {"programs": [program("cloud", expected_to_end=True), program("device-0-0", expected_to_end=True)]},
        {"programs": [program("cloud", ends_the_run=True), program("device-0-0")]},
    ],
)
def test_programs_may_all_end_before_the_time_given(tmp_path: Path, settings: dict[str, Any]) -> None:
    verdict, detail = all_ended(tmp_path, **settings).verdict("finished")
    assert (verdict, detail) == ("pass", containing("programs ended with exit code 0"))


@pytest.mark.parametrize("reported", ["metric", "event"])
def test_programs_that_reported_something_may_end_before_the_time_given(tmp_path: Path, reported: str) -> None:
    run = all_ended(tmp_path)
    if reported == "metric":
        run.record.metric(2.0, "cloud", None, "global", "sent", 40.0)
    else:
        run.record.event(2.0, "cloud", "served", None, {"requests": 7})
    assert run.verdict("finished")[0] == "pass"


def test_rounds_of_programs_are_mentioned_if_there_are_any(tmp_path: Path) -> None:
    run = all_ended(tmp_path, stop={})
    run.record.event(2.0, "cloud", "round", 1, {"phase": "start"})
    run.record.event(3.0, "cloud", "round", 1, {"phase": "end"})
    assert run.verdict("finished") == ("pass", containing("exit code 0 after 1 round"))


def test_rounds_that_stop_with_a_fault_leave_the_run_unknown(tmp_path: Path) -> None:
    """Round 1 takes 2 s, the cloud crashes at 10 s, and nothing follows until 21 s."""
    run = led(tmp_path, (7.0, 9.0), crash=10.0)
    run.record.event(9.0, "cloud", "round", 2, {"phase": "start"})
    assert run.ended("after").verdict("finished") == (
        "unknown",
        containing("over after 1 round", "22 s", "12 s", "at 9.0 s"),
    )


def test_rounds_may_stop_without_a_fault(tmp_path: Path) -> None:
    assert led(tmp_path, (7.0, 9.0)).ended("after").verdict("finished")[0] == "pass"


def led(folder: Path, *rounds: tuple[float, float], crash: float | None = None) -> Run:
    """Rounds of the cloud with their start and end. The nodes were asked to end at 21 s. ``crash``: of the cloud."""
    run = run_of(folder, program("cloud"), faults=[CRASH])
    for number, (start, end) in enumerate(rounds, 1):
        run.record.event(start, "cloud", "round", number, {"phase": "start"})
        run.record.event(end, "cloud", "round", number, {"phase": "end"})
    if crash is not None:
        run.record.fault(crash, 1, "crash", "cloud", "start", 2, "")
    return run


@pytest.mark.parametrize(
    ("rounds", "crash", "verdict"),
    [
        ([(7.0, 9.0), (10.0, 18.0)], 10.0, "pass"),  # they continue
        # Three times the longest round of 2 s, or 5 s: without a round from 15 s, 14.9 s, 16 s or 15.9 s on.
        ([(7.0, 9.0), (14.0, 15.0)], 14.5, "pass"),
        ([(7.0, 9.0), (13.9, 14.9)], 14.5, "unknown"),
        ([(7.0, 8.0), (15.0, 16.0)], 16.0, "pass"),
        ([(7.0, 8.0), (14.9, 15.9)], 16.0, "unknown"),
        # The fault may come in the last round, if that took as long as the longest.
        ([(7.0, 9.0)], 7.0, "unknown"),
        ([(7.0, 9.0)], 6.9, "pass"),
    ],
)
def test_how_long_rounds_may_stop_after_a_fault(
    tmp_path: Path, rounds: list[tuple[float, float]], crash: float, verdict: str
) -> None:
    assert led(tmp_path, *rounds, crash=crash).ended("after").verdict("finished")[0] == verdict


def test_rounds_that_never_end_leave_the_run_unknown(tmp_path: Path) -> None:
    run = run_of(tmp_path, program("cloud"))
    run.record.event(2.0, "cloud", "round", 1, {"phase": "start"})
    assert run.ended("after").verdict("finished") == (
        "unknown",
        containing("over after 0 rounds", "22 s; round 1", "at 1.0 s"),
    )


def test_dropped_lines_are_no_pass(tmp_path: Path) -> None:
    run = run_of(tmp_path, program("cloud"))
    for t, lines in ((2.0, 1500), (3.0, 2500)):
        run.record.event(t, "cloud", LinesDropped.NAME, None, {"lines": lines})
    assert run.ended("after").verdict("messages accepted") == (
        "fail",
        containing("record: 4,000 of cloud", "10,000"),
    )


def test_ends_of_unknown_programs_are_ignored(tmp_path: Path) -> None:
    run = ends(run_of(tmp_path, program("cloud")), 6.0, "stranger")
    run.record.close()
    assert ended_programs(History.open(tmp_path)) == []
