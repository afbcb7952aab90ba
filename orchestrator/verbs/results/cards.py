"""Runs and sweeps as small pieces of HTML, for notebooks. Colours suit a light and a dark page."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from urllib.parse import quote

from orchestrator import text
from orchestrator.results.history import History
from orchestrator.results.summary import summary

COLOURS = {"pass": "#1a7f37", "fail": "#cf222e", "unknown": "#9a6700", "running": "#0969da"}
WIDTH, HEIGHT = 120, 24  # px of a sparkline


@dataclass(frozen=True)
class Drawing:
    """A picture as the text of an SVG file. Notebooks show it."""

    svg: str = field(repr=False)

    def _repr_html_(self) -> str:
        return self.svg


def run_card(history: History) -> str:
    """A run in a line: its name, verdict, goal metric over the rounds, a link to its report. Failed checks follow."""
    found = summary(history)
    goal = history.goal
    running = history.status == "running"
    values = [metric.value for metric in history.global_series(goal)]
    facts = [text.count(found["rounds"], "round"), text.duration(found["seconds"]), found["driver"]]
    parts = [f"<b>{escape(found['name'])}</b>", badge("running" if running else found["verdict"])]
    if values:
        parts += [sparkline(values, goal), f"{escape(goal)} {text.metric(goal, values[-1])}"]
    parts += [escape(", ".join(facts)), link(history.directory / "report.html", "report")]
    failed = [each for each in found["checks"] if each["verdict"] == "fail" and not running]
    reasons = [escape(f"{each['name']}: {each['detail']}") for each in failed]
    return "".join(f"<div>{each}</div>" for each in (" &nbsp; ".join(filter(None, parts)), *reasons))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; headings and cells are HTML."""
    head = "".join(f"<th>{each}</th>" for each in headings)
    body = "".join("<tr>" + "".join(f"<td>{each}</td>" for each in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def badge(verdict: str) -> str:
    """A verdict on its colour."""
    style = f"background:{COLOURS.get(verdict, '#57606a')};color:#fff;border-radius:1em;padding:0 .7em"
    return f'<span style="{style}">{escape(verdict)}</span>'


def sparkline(values: Sequence[float], metric: str = "accuracy") -> str:
    """A line through numbers, without axes: from 0 or the lowest up to 1 or the highest. NaN is left out."""
    places = [(number, value) for number, value in enumerate(values) if math.isfinite(value)]
    finite = [value for _, value in places]
    low = min([0.0, *finite])
    high = max([1.0, *finite])
    right = (WIDTH - 4) / max(1, len(values) - 1)
    up = (HEIGHT - 4) / (high - low)
    points = " ".join(f"{2 + number * right:.1f},{2 + (high - value) * up:.1f}" for number, value in places)
    size = f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(metric)}"'
    line = f'<polyline points="{points}" fill="none" stroke="#2f81c7" stroke-width="1.5"/>'
    return f'<svg {size} style="vertical-align:middle">{line}</svg>'


def link(path: Path, words: str) -> str:
    """A link to a file, seen from the working directory, where a notebook is. Empty without the file."""
    return f'<a href="{quote(os.path.relpath(path))}">{escape(words)}</a>' if path.exists() else ""
