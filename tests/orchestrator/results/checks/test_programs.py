from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.record.events.nodes import LinesDropped, ProgramEnded
from orchestrator.results.checks.programs import ended_programs
from orchestrator.results.history import History
from tests.orchestrator.results.checks.test_registry import FAULT, Run

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
        "1 program ended before the run did: device-0-0 at 5.0 s (exit code 0); write `expected_to_end: true` if that"
        " is right",
    )


@pytest.mark.parametrize(
    ("settings", "t", "verdict"),
    [
        ({}, 15.9, "unknown"),
        ({}, 16.1, "pass"),  # less than 5 s before the end at 21 s
        ({"expected_to_end": True}, 6.0, "pass"),
        ({"ends_the_run": True}, 6.0, "pass"),  # the run ends when all such programs have
    ],
)
def test_which_ends_are_early(tmp_path: Path, settings: dict[str, Any], t: float, verdict: str) -> None:
    run = run_of(tmp_path, program("cloud"), program("device-0-0", **settings))
    assert ends(run, t, "device-0-0").ended("after").verdict(FAILURES)[0] == verdict


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


def test_programs_that_all_end_long_before_the_time_given_and_report_nothing_are_no_pass(tmp_path: Path) -> None:
    run = Run(tmp_path, programs=[program("cloud"), program("device-0-0")], stop={"after": "20s"})
    for label in ("cloud", "device-0-0"):
        ends(run, 3.0, label)
        run.record.state(3.0, label, "done")
    assert run.ended("programs").verdict("finished") == (
        "unknown",
        "the programs ended with exit code 0; all programs ended after 2 s and reported nothing, although `stop.after`"
        " is 20 s: write `expected_to_end: true` if they may",
    )


@pytest.mark.parametrize("what", ["a report", "an expected end", "no limit"])
def test_programs_may_all_end_before_the_time_given(tmp_path: Path, what: str) -> None:
    stop = {} if what == "no limit" else {"after": "20s"}
    run = Run(tmp_path, programs=[program("cloud", expected_to_end=what == "an expected end")], stop=stop)
    if what == "a report":
        run.record.metric(2.0, "cloud", None, "global", "sent", 40.0)
    run.record.state(3.0, "cloud", "done")
    assert ends(run, 3.0, "cloud").ended("programs").verdict("finished")[0] == "pass"


def test_rounds_that_stop_with_a_fault_leave_the_run_unknown(tmp_path: Path) -> None:
    """Round 1 takes 2 s, the cloud crashes at 10 s, and nothing follows until 21 s."""
    run = run_of(tmp_path, program("cloud"), faults=[CRASH])
    run.record.event(7.0, "cloud", "round", 1, {"phase": "start"})
    run.record.event(9.0, "cloud", "round", 1, {"phase": "end"})
    run.record.event(9.0, "cloud", "round", 2, {"phase": "start"})
    run.record.fault(10.0, 1, "crash", "cloud", "start", 2, "")
    assert run.ended("after").verdict("finished") == (
        "unknown",
        "the time given was over after 1 round and 22 s; no round ended in the last 12 s, after crash cloud at 9.0 s;"
        " the longest before took 2 s",
    )


@pytest.mark.parametrize("what", ["no fault", "rounds continue"])
def test_rounds_may_stop_without_a_fault_or_continue_after_it(tmp_path: Path, what: str) -> None:
    run = run_of(tmp_path, program("cloud"), faults=[CRASH])
    run.record.event(7.0, "cloud", "round", 1, {"phase": "start"})
    run.record.event(9.0, "cloud", "round", 1, {"phase": "end"})
    if what == "rounds continue":
        run.record.fault(10.0, 1, "crash", "cloud", "start", 2, "")
        run.record.event(10.0, "cloud", "round", 2, {"phase": "start"})
        run.record.event(18.0, "cloud", "round", 2, {"phase": "end"})
    assert run.ended("after").verdict("finished")[0] == "pass"


def test_rounds_that_never_end_leave_the_run_unknown(tmp_path: Path) -> None:
    run = run_of(tmp_path, program("cloud"))
    run.record.event(2.0, "cloud", "round", 1, {"phase": "start"})
    assert run.ended("after").verdict("finished") == (
        "unknown",
        "the time given was over after 0 rounds and 22 s; round 1 started at 1.0 s, and no round ended",
    )


def test_dropped_lines_are_no_pass(tmp_path: Path) -> None:
    run = run_of(tmp_path, program("cloud"))
    for t, lines in ((2.0, 1500), (3.0, 2500)):
        run.record.event(t, "cloud", LinesDropped.NAME, None, {"lines": lines})
    assert run.ended("after").verdict("messages accepted") == (
        "fail",
        "lines of programs were dropped and are not in the record: 4,000 of cloud; it takes 500 a second from each"
        " node, 10,000 at once: print fewer",
    )


def test_ends_of_unknown_programs_are_ignored(tmp_path: Path) -> None:
    run = ends(run_of(tmp_path, program("cloud")), 6.0, "stranger")
    run.record.close()
    assert ended_programs(History.open(tmp_path)) == []
