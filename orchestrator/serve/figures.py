"""The figures of the page of a run, as data: those of the report, and what nodes and links use over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator import text
from orchestrator.record.events.run import Injected
from orchestrator.record.rows import FaultSpan
from orchestrator.report import figures
from orchestrator.report.marks import Figure, thinned
from orchestrator.report.media import media_so_far
from orchestrator.results.story import Story

MOST = 600  # points of a curve
LISTED = 500  # faults in the table
FRESH = 2.5  # s after which the last reading of a rate says nothing about now


def figures_of(story: Story) -> dict[str, Figure]:
    """The figures by their ids on the page; without those that a simulation does not have."""
    made = figures.learning(story) | {name: make(story) for name, make in FIGURES.items()}
    return {id: thinned(figure, MOST) for id, figure in made.items() if figure is not None}


def faults_of(story: Story) -> dict[str, Any]:
    """The faults: how many were planned, took effect and were made manually, and the rows of their table."""
    spans = story.faults()
    began = story.training_began or 0.0
    injected = [event for _, node, _, event in story.recorded(Injected) if not node]
    via = {event.fault: str(event.via) for event in injected}
    return {
        "planned": sum(not span.by for span in spans),
        "begun": len(story.begun - story.by_hand.keys()),
        "manual": len(story.by_hand),
        "rows": [_fault(span, via.get(span.id, ""), began) for span in spans[-LISTED:]],
    }


def _fault(span: FaultSpan, via: str, began: float) -> list[str]:
    at = span.planned.get("at")
    number = span.planned.get("round")
    made = f"planned at {text.duration(at)}" if at is not None else f"planned in round {number}"
    if span.skipped is not None:
        start = "not possible"
    else:
        start = _at(span.start, began)
    by = f"manual: {span.by}{f', {via}' * bool(via)}"
    return [f"{span.action} {span.target}", by if span.by else made, start, _at(span.end, began)]


def _at(t: float | None, began: float) -> str:
    return "–" if t is None else text.duration(t - began)


def _processor(story: Story) -> Figure | None:
    if story.simulated:
        return None
    title = "Processor of each node, now"
    unit = "cores"
    values = {node: flow.rate for node, flow in story.usage.cpu.items() if story.seconds - flow.t <= FRESH}
    if story.status != "running":
        title = "Processor time of each node"
        unit = "CPU seconds"
        values = {node: flow.total for node, flow in story.usage.cpu.items()}
    values = {node: round(value, 3) for node, value in values.items()}
    return figures.bars_of_nodes(story, title, unit, values, lambda value: f"{text.number(value)} {unit}")


def _memory(story: Story) -> Figure | None:
    if story.simulated:
        return None
    title = f"Memory of each node ({story.usage.memory_measure})"
    return figures.bars_of_nodes(story, title, "bytes", dict(story.usage.memory), text.size)


FIGURES: dict[str, Callable[[Story], Figure | None]] = {
    "bytes": figures.bytes_over_time,
    "media": media_so_far,
    "coordinators": figures.rounds_over_time,
    "processor": _processor,
    "memory": _memory,
}
"""By their ids on the page, without those of learning."""
