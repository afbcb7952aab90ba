"""What a run may hide although no node failed: programs that ended before it did, and rounds that stopped.

A program that ends with exit code 0 leaves its node online, and a run that ends by its time asks for nothing more.
Such a run may have done nothing for most of its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from netem.units import parse_duration
from orchestrator import text
from orchestrator.record.events.nodes import RESERVED, BadMessage, NodeFailed, OutOfMemory, ProgramEnded
from orchestrator.record.events.run import Training
from orchestrator.record.rows import FaultSpan
from orchestrator.results.facts import Facts
from orchestrator.results.history import History

TOLERANCE = 5.0  # s before the end of the run in which a program may end unexpectedly
STALLED = 3.0  # times the longest round without the end of another one
# The events of nodes that the orchestrator records.
_NO_REPORTS = frozenset((*RESERVED, NodeFailed.NAME, BadMessage.NAME, OutOfMemory.NAME))


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
    ended = []
    for t, node, _, end in history.recorded(ProgramEnded):
        program = planned.get(end.program)
        if program is not None and node is not None:
            expected = bool(program.get("expected_to_end") or program.get("ends_the_run"))
            ended.append(EndedProgram(t, node, program["label"], int(end.code), expected))
    return ended


def early_ends(history: Facts) -> list[EndedProgram]:
    """The programs that ended with exit code 0 more than `TOLERANCE` before the run, and were not expected to. Another
    exit code ends the node, which is a failure of its own."""
    if _ended_with_all_programs(history):
        return []
    limit = asked_to_end(history) - TOLERANCE
    early = [program for program in ended_programs(history) if program.t < limit]
    return [program for program in early if program.code == 0 and not program.expected]


def asked_to_end(history: Facts) -> float:
    """The time at which the nodes were asked to end, in s of the run; its time so far, if they were not."""
    starts = [event.t for event in history.events(Training.NAME)]
    answers = [state.t for state in history.states() if state.state == "done"]
    if starts:  # before the last one, the run had ended and was continued
        answers = [t for t in answers if t >= starts[-1]]
    return min(answers, default=history.seconds)


def all_ended_idle(history: History) -> str | None:
    """In words that all programs ended long before the time that `stop.after` gives, and reported nothing; None if that
    is not so, or expected."""
    stop = history.plan.get("stop") or {}
    after = stop.get("after")
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
    began = history.training_began
    rounds = [round for round in history.rounds() if round.node in history.leaders]
    if began is None or not rounds:
        return None
    ends = []
    lengths = []
    for round in rounds:
        if round.end is not None:
            ends.append(round.end)
            lengths.append(round.end - round.start)
    if not ends:
        first = rounds[0]
        return f"round {first.round} started at {first.start - began:.1f} s, and no round ended"
    longest = max(lengths)
    last = max(ends)
    idle = asked_to_end(history) - last
    fault = _first_fault_since(history.faults(), last - longest, began)
    if fault is None or idle <= max(TOLERANCE, STALLED * longest):
        return None
    return (
        f"no round ended in the last {text.duration(idle)}, after {fault}; the longest before took "
        f"{text.duration(longest)}"
    )


def _first_fault_since(faults: Sequence[FaultSpan], t: float, began: float) -> str | None:
    """The first fault that started at ``t`` or later, in words. ``began``: the start of the training."""
    for span in faults:
        if span.start is not None and span.start >= t:
            return f"{span.action} {span.target} at {span.start - began:.1f} s"
    return None


def _programs(history: Facts) -> Sequence[dict[str, Any]]:
    return history.plan.get("programs") or ()


def _ended_with_all_programs(history: Facts) -> bool:
    """Whether the run ended because all its programs had."""
    outcome = history.outcome
    if outcome is None or outcome.ended != "programs":
        return False
    return not any(program.get("ends_the_run") for program in _programs(history))


def _reported(history: History) -> bool:
    """Whether any program reported anything."""
    for event in history.events():
        if event.node is not None and event.name not in _NO_REPORTS:
            return True
    return bool(history.metric_names())
