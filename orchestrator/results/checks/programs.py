"""What a run may hide although no node failed: programs that ended before it did, and rounds that stopped.

A program that ends with exit code 0 leaves its node online, and a run that ends by its time asks for nothing more.
Such a run may have done nothing for most of its time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from netem.units import parse_duration
from orchestrator import text
from orchestrator.record.events.nodes import RESERVED, BadMessage, NodeFailed, OutOfMemory, ProgramEnded
from orchestrator.record.events.run import Training
from orchestrator.record.rows import FaultSpan, Round
from orchestrator.results.facts import Facts
from orchestrator.results.history import History

TOLERANCE = 5.0  # s before the end of the run in which a program may end unexpectedly
STALLED = 3.0  # times the longest round without the end of another one
_NO_REPORTS = frozenset(
    (*RESERVED, NodeFailed.NAME, BadMessage.NAME, OutOfMemory.NAME)
)  # events of nodes by the orchestrator


class EndedProgram(NamedTuple):
    """The end of a program before its run was stopped. ``t``: in seconds of the run. ``code``: its exit code, or
    the negative number of a signal. ``expected``: whether the scenario allows that."""

    t: float
    node: str
    label: str
    code: int
    expected: bool

    @property
    def how(self) -> str:
        return text.how_ended(self.code)


def ended_programs(history: Facts) -> list[EndedProgram]:
    """The programs that ended before the run was stopped, in the order of time."""
    planned = {program["label"]: program for program in history.plan.get("programs", ())}
    found = []
    for t, node, _, end in history.recorded(ProgramEnded):
        program = planned.get(end.program)
        if program is not None and node is not None:
            expected = bool(program.get("expected_to_end") or program.get("ends_the_run"))
            found.append(EndedProgram(t, node, program["label"], int(end.code), expected))
    return found


def early_ends(history: Facts) -> list[EndedProgram]:
    """The programs that ended with exit code 0 more than `TOLERANCE` before the run, and were not expected to. Another
    exit code ends the node, which is a failure of its own."""
    if _ended_with_all_programs(history):
        return []
    limit = asked_to_end(history) - TOLERANCE
    return [each for each in ended_programs(history) if each.code == 0 and not each.expected and each.t < limit]


def asked_to_end(history: Facts) -> float:
    """The time at which the nodes were asked to end, in s of the run; its time so far, if they were not."""
    began = max((event.t for event in history.events(Training.NAME)), default=0.0)
    answers = [state.t for state in history.states() if state.state == "done" and state.t >= began]
    return min(answers, default=history.seconds)


def all_ended_idle(history: History) -> str | None:
    """In words that all programs ended long before the time that `stop.after` gives, and reported nothing; None if that
    is not so, or expected."""
    after = (history.plan.get("stop") or {}).get("after")
    began = history.training_began
    if after is None or began is None or not _ended_with_all_programs(history):
        return None
    if isinstance(after, str):
        given = parse_duration(after)
    else:
        given = float(after)
    took = asked_to_end(history) - began
    expected = all(program.get("expected_to_end") for program in _programs(history))
    if expected or took >= given - TOLERANCE or _reported(history):
        return None
    return (
        f"all programs ended after {text.duration(took)} and reported nothing, although `stop.after` is "
        f"{text.duration(given)}: write `expected_to_end: true` if they may"
    )


def stopped_rounds(history: Facts) -> str | None:
    """In words that rounds of the leading nodes started and none ended, or that they stopped with a fault and did not
    continue; None otherwise."""
    began = history.training_began or 0.0
    rounds = [each for each in history.rounds() if each.node in history.leaders]
    if not rounds:
        return None
    done = [each for each in rounds if each.end is not None]
    if not done:
        return f"round {rounds[0].round} started at {rounds[0].start - began:.1f} s, and no round ended"
    longest = max(_length(each) for each in done)
    last = max(each.end or 0.0 for each in done)
    idle = asked_to_end(history) - last
    fault = next(_faults_since(history.faults(), last - longest), None)
    if fault is None or idle <= max(TOLERANCE, STALLED * longest):
        return None
    at = (fault.start or 0.0) - began
    return (
        f"no round ended in the last {text.duration(idle)}, after {fault.action} {fault.target} at {at:.1f} s; the "
        f"longest before took {text.duration(longest)}"
    )


def _length(each: Round) -> float:
    return (each.end or each.start) - each.start


def _faults_since(faults: Sequence[FaultSpan], t: float) -> Iterator[FaultSpan]:
    return (span for span in faults if span.start is not None and span.start >= t)


def _programs(history: Facts) -> Sequence[dict[str, Any]]:
    return history.plan.get("programs") or ()


def _ended_with_all_programs(history: Facts) -> bool:
    """Whether the run ended because all its programs had."""
    outcome = history.outcome
    by_programs = outcome is not None and outcome.ended == "programs"
    return by_programs and not any(program.get("ends_the_run") for program in _programs(history))


def _reported(history: History) -> bool:
    """Whether any program reported anything."""
    events = [event for event in history.events() if event.node is not None and event.name not in _NO_REPORTS]
    return bool(events or history.metric_names())
