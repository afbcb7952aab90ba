"""The checks that planned faults took effect and when, and that no packet crossed a link while it was cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from orchestrator import text
from orchestrator.record.events.run import Continued, Training
from orchestrator.record.rows import CUTS, FaultSpan
from orchestrator.results.checks.verdicts import Assessment, Verdict
from orchestrator.results.facts import Facts
from orchestrator.results.history import History
from orchestrator.results.traffic import volumes

AWAY = ("crashed", "paused", "restarting", "left", "planned", "starting")
SETTLING = 0.2  # s after a cut and before its end in which a sample may still count packets from outside the cut


def faults_took_effect(history: Facts) -> Assessment:
    """Check that every planned fault that was due took effect, and in time, and that no packet crossed a cut link."""
    faults = history.faults()
    spans = [span for span in faults if not span.by]
    by_hand = [span for span in faults if span.by]
    if not faults:
        return "pass", "no faults were planned"
    made = [span for span in spans if span.start is not None]
    skipped = [span for span in spans if span.skipped is not None]
    moot = [span for span in skipped if _moot(history, span, by_hand)]
    refused = [span for span in skipped if span not in moot]
    not_reached = [span for span in spans if span.start is None and span.skipped is None]
    missed = _missed(history, not_reached)
    summary = "none was planned"
    if spans:
        summary = f"{len(made)} of {text.count(len(spans), 'planned fault')} took effect"
    if by_hand:
        were = "was" if len(by_hand) == 1 else "were"
        summary += f"; {len(by_hand)} {were} made manually"
    if refused:
        reasons = text.some(f"{span.action} {span.target} ({span.detail})" for span in refused)
        return "fail", f"{summary}; not possible: {reasons}"
    if missed:
        names = text.some(f"{span.action} {span.target}" for span in missed)
        return "fail", f"{summary}; never made: {names}"
    running = history.status == "running"
    if isinstance(history, History) and not running:  # a story has no readings
        leaks = _leaks(history, (*made, *by_hand))
        if leaks:
            return "fail", f"{summary}, but packets crossed a link while it was cut: {text.some(leaks)}"
    verdict, late = timely(history, (*made, *moot))
    if moot:
        summary += f", {len(moot)} met a node that was already away"
    if not_reached and running:
        summary += f"; {len(not_reached)} to come"
    elif not_reached:
        summary += f"; the run ended before {len(not_reached)} of them"
    return verdict, summary + late


def _moot(history: Facts, span: FaultSpan, by_hand: Sequence[FaultSpan]) -> bool:
    """Whether a skipped fault was moot: its nodes were away, or had joined manually, or the run was over."""
    assert span.skipped is not None
    outcome = history.outcome
    if outcome is not None and span.skipped >= outcome.t:
        return True
    joined = [manual.nodes for manual in by_hand if manual.action == "join"]
    if span.action == "join" and span.nodes in joined:
        return True
    earlier = [state for state in history.states() if state.t <= span.skipped]
    now = {state.node: state.state for state in earlier}
    states = [now.get(node, "planned") for node in span.nodes]
    return bool(states) and all(state in (*AWAY, "done") for state in states)


def _missed(history: Facts, spans: Iterable[FaultSpan]) -> list[FaultSpan]:
    """The faults after which the training continued, by their planned times."""
    began = history.training_began
    if began is None or history.status == "running":
        return []
    ended = history.training_ended
    done = history.rounds_done()

    def was_due(span: FaultSpan) -> bool:
        at = span.planned.get("at")
        round = span.planned.get("round")
        if at is not None:
            was_over: bool = began + at + ON_TIME < ended
            return was_over
        return round is not None and done >= int(round)

    return [span for span in spans if was_due(span)]


def _leaks(history: History, spans: Sequence[FaultSpan]) -> list[str]:
    """The links that delivered packets while faults cut them. A run that was continued has new links."""
    continued = [event.t for event in history.events(Continued.NAME)]
    windows: list[tuple[str, str, float, float]] = []
    cut: list[tuple[str, FaultSpan]] = []  # the link and the fault of each window
    moved = _moved_links(spans)
    for span in spans:
        if span.action not in CUTS or span.start is None:
            continue
        end = history.seconds if span.end is None else span.end
        breaks = [t for t in continued if span.start < t < end]
        parts = list(pairwise((span.start, *breaks, end)))
        may_have_moved = "medium" in span.planned
        for source, target in span.planned.get("links") or ():
            if may_have_moved and (source, target) in moved:
                continue  # it may have crossed another medium
            for start, stop in parts:
                windows.append((source, target, start + SETTLING, stop - SETTLING))
                cut.append((f"{source} → {target}", span))
    packets: dict[tuple[str, int], int] = {}
    targets: dict[int, str] = {}
    counts = volumes.delivered(history, windows)
    for (link, span), counted in zip(cut, counts, strict=True):
        targets[span.id] = span.target
        packets.setdefault((link, span.id), 0)
        if counted is not None:
            _, delivered = counted
            packets[link, span.id] += delivered
    leaks = []
    for (link, fault), count in packets.items():
        if count:
            leaks.append(f"{link} ({text.count(count, 'packet')} in {targets[fault]})")
    return leaks


def _moved_links(spans: Iterable[FaultSpan]) -> set[tuple[str, str]]:
    """The links that faults moved to another medium."""
    moved = set()
    for span in spans:
        for source, target, *_ in span.planned.get("crossings", ()):
            moved.add((source, target))
    return moved


ON_TIME = 1.0  # s; commands to several containers on a busy host take tenths of a second
TOO_LATE = 5.0  # s, from which on the run is another experiment


class FaultLateness(NamedTuple):
    """A fault took effect ``seconds`` after ``planned``. Both times are in seconds of training."""

    seconds: float
    planned: float
    span: FaultSpan


def lateness(history: Facts, spans: Iterable[FaultSpan]) -> list[FaultLateness]:
    """The lateness of each fault that took effect or met a node that was away; by the first leader's rounds."""
    began = history.training_began
    if began is None:
        return []
    begins: dict[int, float] = {}
    for led in history.rounds():
        if led.node in history.leaders:
            earliest = begins.get(led.round, led.start)
            begins[led.round] = min(led.start, earliest)
    stops = _stops(history)
    late = []
    for span in spans:
        at = span.planned.get("at")
        round = span.planned.get("round")
        made = span.skipped if span.start is None else span.start
        if made is None:
            continue
        if at is not None:
            away = sum(seconds for since, seconds in stops if since < made)
            late.append(FaultLateness(made - began - away - at, at, span))
        elif round is not None:
            starts = [t for number, t in begins.items() if number >= round]
            due = min(starts, default=made)
            late.append(FaultLateness(made - due, due - began, span))
    return late


def _stops(history: Facts) -> list[tuple[float, float]]:
    """When the run was continued, and how many seconds passed until it trained again. Faults wait for these too."""
    stops = []
    continued = None
    for event in history.events(Training.NAME, Continued.NAME):
        if event.name == Continued.NAME:
            continued = event.t
        elif continued is not None:
            stops.append((continued, event.t - continued))
            continued = None
    return stops


def timely(history: Facts, spans: Iterable[FaultSpan]) -> Assessment:
    """Whether faults took effect when the plan says: unknown if one was more than ``ON_TIME`` late, fail if more than
    ``TOO_LATE``. The words start with a semicolon; empty if none was late."""
    late = [fault for fault in lateness(history, spans) if fault.seconds >= 0.001]
    if not late:
        return "pass", ""
    worst = max(late, key=lambda fault: fault.seconds)
    if worst.seconds <= ON_TIME:
        return "pass", f"; the latest was {text.duration(worst.seconds)} late"
    many = text.count(sum(fault.seconds > ON_TIME for fault in late), "fault")
    verdict: Verdict = "fail" if worst.seconds > TOO_LATE else "unknown"
    return verdict, (
        f"; {many} took effect more than {ON_TIME:g} s late, the latest by {text.duration(worst.seconds)}: "
        f"{worst.span.action} {worst.span.target}, planned at {text.duration(worst.planned)} of the training"
    )
