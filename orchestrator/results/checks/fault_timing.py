"""How late planned faults took effect: their times in the record against those of the plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from orchestrator import text
from orchestrator.results.checks.verdicts import Assessment
from orchestrator.results.facts import Facts
from orchestrator.results.record.rows import FaultSpan
from orchestrator.results.record.writer import CONTINUED

ON_TIME = 1.0  # s; commands to several containers on a busy host take tenths of a second
TOO_LATE = 5.0  # s, from which on the run is another experiment


class FaultLateness(NamedTuple):
    """A fault took effect ``seconds`` after ``planned``. Both times are in seconds of training."""

    seconds: float
    planned: float
    span: FaultSpan


def lateness(history: Facts, spans: Iterable[FaultSpan]) -> list[FaultLateness]:
    """The lateness of each fault that took effect, or met a node that was away. One of a round is due when the first
    leading node begins it."""
    began = history.training_began or 0.0
    begins: dict[int, float] = {}
    for each in history.rounds():
        if each.node in history.leaders:
            begins[each.round] = min(each.start, begins.get(each.round, each.start))
    stops = _stops(history)
    found = []
    for span in spans:
        at, round = span.planned.get("at"), span.planned.get("round")
        made = span.skipped if span.start is None else span.start
        if made is None:
            continue
        if at is not None:
            away = sum(seconds for since, seconds in stops if since < made)
            found.append(FaultLateness(made - began - away - at, at, span))
        elif (due := min((t for number, t in begins.items() if number >= (round or 0)), default=None)) is not None:
            found.append(FaultLateness(made - due, due - began, span))
    return found


def _stops(history: Facts) -> list[tuple[float, float]]:
    """When the run was continued, and how many seconds passed until it trained again. Faults wait for these too."""
    found, continued = [], None
    for event in history.events("training", CONTINUED):
        if event.name == CONTINUED:
            continued = event.t
        elif continued is not None:
            found.append((continued, event.t - continued))
            continued = None
    return found


def timely(history: Facts, spans: Iterable[FaultSpan]) -> Assessment:
    """Whether faults took effect when the plan says: unknown if one was more than ``ON_TIME`` late, fail if more than
    ``TOO_LATE``. The words begin with a semicolon; empty if none was late."""
    late = [each for each in lateness(history, spans) if each.seconds >= 0.001]
    worst = max(late, default=None, key=lambda each: each.seconds)
    if worst is None:
        return "pass", ""
    if worst.seconds <= ON_TIME:
        return "pass", f"; the latest was {text.duration(worst.seconds)} late"
    many = text.count(sum(each.seconds > ON_TIME for each in late), "fault")
    return "fail" if worst.seconds > TOO_LATE else "unknown", (
        f"; {many} took effect more than {ON_TIME:g} s late, the latest by {text.duration(worst.seconds)}: "
        f"{worst.span.action} {worst.span.target}, planned at {text.duration(worst.planned)} of the training"
    )
