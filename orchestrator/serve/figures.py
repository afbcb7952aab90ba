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
    drawn = dict(figures.learning(story))
    for id, draw in FIGURES.items():
        figure = draw(story)
        if figure is not None:
            drawn[id] = figure
    shown = {}
    for id, figure in drawn.items():
        shown[id] = thinned(figure, MOST)
    return shown


def faults_of(story: Story) -> dict[str, Any]:
    """The faults: how many were planned, took effect and were made manually, and the rows of their table."""
    spans = story.faults()
    began = story.training_began or 0.0
    via = {}
    for recorded in story.recorded(Injected):
        if not recorded.node:
            via[recorded.event.fault] = str(recorded.event.via)
    rows = []
    for span in spans[-LISTED:]:
        tool = via.get(span.id, "")
        rows.append(_fault(span, tool, began))
    return {
        "planned": sum(not span.by for span in spans),
        "begun": len(story.begun - story.by_hand.keys()),
        "manual": len(story.by_hand),
        "rows": rows,
    }


def _fault(span: FaultSpan, via: str, began: float) -> list[str]:
    """A row of the table: the fault, its origin, its start, its end."""
    if span.skipped is not None:
        start = "not possible"
    else:
        start = _at(span.start, began)
    fault = f"{span.action} {span.target}"
    end = _at(span.end, began)
    return [fault, _origin(span, via), start, end]


def _origin(span: FaultSpan, via: str) -> str:
    """When a fault was planned, or the user and the tool of a manual one."""
    if span.by:
        return f"manual: {span.by}, {via}" if via else f"manual: {span.by}"
    at = span.planned.get("at")
    if at is not None:
        return f"planned at {text.duration(at)}"
    return f"planned in round {span.planned.get('round')}"


def _at(t: float | None, began: float) -> str:
    if t is None:
        return "–"
    return text.duration(t - began)


def _processor(story: Story) -> Figure | None:
    if story.simulated:
        return None
    values = {}
    if story.status == "running":
        title = "Processor of each node, now"
        unit = "cores"
        for node, used in story.usage.cpu.items():
            if story.seconds - used.t <= FRESH:
                values[node] = round(used.rate, 3)
    else:
        title = "Processor time of each node"
        unit = "CPU seconds"
        for node, used in story.usage.cpu.items():
            values[node] = round(used.total, 3)

    def in_words(value: float) -> str:
        return f"{text.number(value)} {unit}"

    return figures.bars_of_nodes(story, title, unit, values, in_words)


def _memory(story: Story) -> Figure | None:
    if story.simulated:
        return None
    usage = story.usage
    title = f"Memory of each node ({usage.memory_measure})"
    return figures.bars_of_nodes(story, title, "bytes", dict(usage.memory), text.size)


FIGURES: dict[str, Callable[[Story], Figure | None]] = {
    "bytes": figures.bytes_over_time,
    "media": media_so_far,
    "coordinators": figures.rounds_over_time,
    "processor": _processor,
    "memory": _memory,
}
"""By their ids on the page, without those of learning."""
