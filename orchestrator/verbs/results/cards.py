"""Runs and sweeps as small pieces of HTML, for notebooks. Colours suit a light and a dark page."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from orchestrator import text
from orchestrator.results.history import History
from orchestrator.results.summary import summary

COLOURS = {
    "pass": "#1a7f37",
    "fail": "#cf222e",
    "unknown": "#9a6700",
    "running": "#0969da",
}
WIDTH = 120  # px of a sparkline
HEIGHT = 24


@dataclass(frozen=True)
class Drawing:
    """A picture as the text of an SVG file. Notebooks show it."""

    svg: str = field(repr=False)

    def _repr_html_(self) -> str:
        return self.svg


def run_card(history: History) -> str:
    """A run in a line: its name, verdict, goal metric over the rounds, a link to its report. Failed checks follow."""
    result = summary(history)
    running = history.status == "running"
    verdict = "running" if running else result["verdict"]
    name = escape(result["name"])
    parts = [f"<b>{name}</b>", badge(verdict)]
    goal = history.goal
    values = [metric.value for metric in history.global_series(goal)]
    if values:
        latest = text.metric(goal, values[-1])
        parts.append(sparkline(values, goal))
        parts.append(f"{escape(goal)} {latest}")
    rounds = text.count(result["rounds"], "round")
    seconds = text.duration(result["seconds"])
    parts.append(escape(f"{rounds}, {seconds}, {result['driver']}"))
    report = link(history.directory / "report.html", "report")
    if report:
        parts.append(report)
    lines = [" &nbsp; ".join(parts)]
    if not running:
        lines += _failures(result["checks"])
    return "".join(f"<div>{line}</div>" for line in lines)


def _failures(checks: Iterable[Mapping[str, Any]]) -> list[str]:
    """The failed checks with their details, as HTML."""
    failures = []
    for check in checks:
        if check["verdict"] == "fail":
            failures.append(escape(f"{check['name']}: {check['detail']}"))
    return failures


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; headings and cells are HTML."""
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    body = ""
    for row in rows:
        cells = "".join(f"<td>{cell}</td>" for cell in row)
        body += f"<tr>{cells}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def badge(verdict: str) -> str:
    """A verdict on its colour."""
    colour = COLOURS.get(verdict, "#57606a")
    style = f"background:{colour};color:#fff;border-radius:1em;padding:0 .7em"
    return f'<span style="{style}">{escape(verdict)}</span>'


def sparkline(values: Sequence[float], metric: str = "accuracy") -> str:
    """A line through numbers, without axes: from 0 or the lowest up to 1 or the highest. NaN is left out."""
    finite = [value for value in values if math.isfinite(value)]
    low = min([0.0, *finite])
    high = max([1.0, *finite])
    # px for each value to the right, and for 1 upwards; the margin is 2 px
    steps = max(1, len(values) - 1)
    right = (WIDTH - 4) / steps
    up = (HEIGHT - 4) / (high - low)
    points = []
    for number, value in enumerate(values):
        if math.isfinite(value):
            x = 2 + number * right
            y = 2 + (high - value) * up
            points.append(f"{x:.1f},{y:.1f}")
    size = f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(metric)}"'
    line = f'<polyline points="{" ".join(points)}" fill="none" stroke="#2f81c7" stroke-width="1.5"/>'
    return f'<svg {size} style="vertical-align:middle">{line}</svg>'


def link(path: Path, words: str) -> str:
    """A link to a file, seen from the working directory, where a notebook is. Empty without the file."""
    if not path.exists():
        return ""
    address = quote(os.path.relpath(path))
    return f'<a href="{address}">{escape(words)}</a>'
