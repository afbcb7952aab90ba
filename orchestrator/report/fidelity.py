"""Fidelity of links and host, for the report: overloads, losses and what real links were, in words, and the figures of
configured and measured values of a calibration."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator import text
from orchestrator.record.events.links import LossAudit
from orchestrator.record.events.nodes import Late, Overrun
from orchestrator.record.events.overload import SATURATED
from orchestrator.record.rows import ProbeResult
from orchestrator.report.figures import MANY_SERIES
from orchestrator.report.marks import Figure, Mark, axis, bars, figure, points
from orchestrator.results.checks.links import overloads
from orchestrator.results.checks.verdicts import WORST_FIRST
from orchestrator.results.history import History

HARMFUL = "var(--fail)"
HARMLESS = "var(--unknown)"
COLOURS = {
    "pass": "var(--pass)",
    "fail": "var(--fail)",
    "unknown": "var(--unknown)",
    "measured": "var(--modelled)",
}
# Quantity, title, unit on the page, and how many of this unit are one unit of the record.
QUANTITIES = (
    ("rtt", "round trip", "ms", 1e3),
    ("delay", "one way", "ms", 1e3),
    ("loss", "loss", "%", 1e2),
    ("burst", "mean burst of losses", "packets", 1.0),
    ("rate", "rate", "Mbit/s", 1e-6),
    ("queue", "queue when saturated", "ms", 1e3),
)
_ORDER = [*map(str, WORST_FIRST), "measured"]
MOST = 200  # overloads in the table, the longest ones; the record has all


def overload_rows(history: History) -> list[dict[str, str]]:
    """The periods in which the link engine or the host was overloaded, in words."""
    began = history.training_began or 0.0
    periods = sorted(overloads(history), key=lambda overload: overload.start - overload.end)
    longest = periods[:MOST]
    longest.sort(key=lambda overload: overload.start)
    rows = []
    for overload in longest:
        lost = [f"{number:,} {where}" for where, number in overload.lost.items()]
        late = ""
        latest = ""
        if overload.late:
            late = text.number(overload.late)
            latest = text.duration(overload.late_max)
        row = {
            "at": f"{overload.start - began:.1f} s".replace("-", "−"),
            "lasted": text.duration(overload.end - overload.start),
            "what": ", ".join(overload.effects),
            "cause": overload.cause,
            "late": late,
            "latest": latest,
            "lost": ", ".join(lost),
            "processors": text.percent(overload.processors),
            "switch": text.percent(overload.switch),
            "waiting": text.percent(overload.waiting),
        }
        rows.append(row)
    return rows


def mark_overloads(timeline: Figure, history: History) -> Figure:
    """The timeline with a shade over each overload."""
    began = history.training_began or 0.0
    shades = []
    for overload in overloads(history):
        start = round(overload.start - began, 3)
        end = round(overload.end - began, 3)
        harmless = overload.effects == (SATURATED,)
        shades.append({"x0": start, "x1": end, "colour": HARMLESS if harmless else HARMFUL})
    if not shades:
        return timeline.copy()
    return timeline | {"shades": shades}


def probe_rows(history: History) -> list[dict[str, Any]]:
    """The probes with asked and measured values, failed ones first."""
    rows = []
    for probe in sorted(history.probes(), key=_rank):
        row = {
            "link": probe.link,
            "link_class": probe.link_class,
            "kind": probe.kind,
        }
        for name in ("asked", "expected", "measured", "low", "high"):
            row[name] = text.quantity(probe.quantity, getattr(probe, name))
        row["quantity"] = probe.quantity
        row["verdict"] = probe.verdict
        row["detail"] = probe.detail
        if probe.measured_in is not None:
            row["detail"] += f"; measured in {probe.measured_in}"
        rows.append(row)
    return rows


def _rank(probe: ProbeResult) -> int:
    if probe.verdict in _ORDER:
        return _ORDER.index(probe.verdict)
    return 1


def look_rows(history: History) -> list[dict[str, str]]:
    """The losses during the run: of each class of links, and of each link that deviated from its profile."""
    audits = history.recorded(LossAudit)
    if not audits:
        return []
    latest = audits[-1].event
    rows = []
    for link in latest.astray:
        rows.append(_look_row(link, link["link"]))
    for link_class in latest.classes:
        links = str(link_class["class"])
        if link_class["links"] != 1:
            links += f", {link_class['links']} directions"
        rows.append(_look_row(link_class, links))
    return rows


def _look_row(losses: Mapping[str, Any], links: str) -> dict[str, str]:
    high = losses["high"]
    return {
        "links": links,
        "packets": text.number(losses["packets"]),
        "lost": text.number(losses["lost"]),
        "asked": text.loss(losses["asked"]),
        "measured": text.loss(losses["measured"]),
        "low": text.loss(losses["low"]),
        "high": "any" if high is None else text.loss(high),
        "verdict": losses["verdict"],
    }


def late_rows(history: History) -> list[dict[str, Any]]:
    """Abandoned rounds and late answers, by coordinator."""
    late: Counter[str] = Counter()
    for event in history.events(Late.NAME):
        late[event.node or ""] += 1
    abandoned: defaultdict[str, list[str]] = defaultdict(list)
    for row in history.rounds():
        if row.abandoned:
            abandoned[row.node].append(str(row))
    rows = []
    for node in sorted({*late, *abandoned}):
        rounds = text.some(abandoned[node], 20)
        rows.append({"node": node, "late": late[node], "abandoned": rounds})
    return rows


def overrun_rows(history: History) -> list[dict[str, Any]]:
    """The steps that took longer than the node's hardware needs, by node."""
    by_node: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for _, node, _, overrun in history.recorded(Overrun):
        step = (overrun.asked or 0.0, overrun.taken or 0.0)
        by_node[node or ""].append(step)
    rows = []
    for node, steps in sorted(by_node.items()):
        requested, taken = max(steps, key=lambda step: step[1] - step[0])
        worst = f"{text.duration(taken)} instead of {text.duration(requested)}"
        rows.append({"node": node, "steps": len(steps), "worst": worst})
    return rows


def probe_figures(probes: Sequence[ProbeResult]) -> dict[str, Figure]:
    """A figure for each quantity that was probed, by its id on the page."""
    drawn = {}
    for name, title, unit, factor in QUANTITIES:
        probes_of_quantity = [probe for probe in probes if probe.quantity == name]
        if probes_of_quantity:
            drawn[f"calibration-{name}"] = _figure(probes_of_quantity, title, unit, factor)
    return drawn


def _figure(
    probes: Sequence[ProbeResult],
    title: str,
    unit: str,
    factor: float,
) -> Figure:
    """One row per direction: the accepted range as a bar, the expected value as a stroke, the measured as a dot. The
    expected value is the middle of the range; the configured one may lie outside of it, for instance with jitter."""
    marks = [_accepted(probes, factor), _expected(probes, factor)]
    for verdict, colour in COLOURS.items():
        measured = _measured(probes, verdict, colour, factor)
        if measured is not None:
            marks.append(measured)
    labels = []
    for probe in probes:
        real = " (real)" if probe.kind == "real" else ""
        labels.append(f"{probe.link_class}: {probe.link}{real}")
    x = axis(f"{title}, {unit}", zero=True)
    y = axis(labels=labels)
    return figure(f"{title.capitalize()}: expected and measured", x, y, marks, 34 * len(probes))


def _accepted(probes: Sequence[ProbeResult], factor: float) -> Mark:
    bounds = []
    for row, probe in enumerate(probes):
        low = _scaled(probe.low, factor)
        high = _scaled(probe.high, factor)
        if low is None or high is None or high >= 1e12:
            continue
        bounds.append((low, high, row - 0.25, row + 0.25))
    return bars("accepted", bounds, MANY_SERIES, opacity=0.45)


def _expected(probes: Sequence[ProbeResult], factor: float) -> Mark:
    x = []
    for probe in probes:
        value = probe.asked if probe.expected is None else probe.expected
        x.append(_scaled(value, factor))
    return points(
        "expected",
        x,
        [float(row) for row in range(len(probes))],
        "var(--text)",
        size=16,
        stroke=True,
        notes=[_expected_in_words(probe) for probe in probes],
    )


def _measured(
    probes: Sequence[ProbeResult],
    verdict: str,
    colour: str,
    factor: float,
) -> Mark | None:
    """The measured values with this verdict; None if it has none."""
    x = []
    y = []
    notes = []
    for row, probe in enumerate(probes):
        if probe.verdict != verdict or probe.measured is None:
            continue
        x.append(_scaled(probe.measured, factor))
        y.append(float(row))
        value = text.quantity(probe.quantity, probe.measured)
        notes.append(f"measured {value}, {probe.detail}")
    if not notes:
        return None
    name = "measured: real" if verdict == "measured" else f"measured: {verdict}"
    return points(name, x, y, colour, notes=notes)


def _expected_in_words(probe: ProbeResult) -> str:
    """The expected value, and the configured one if it reads differently."""
    asked = text.quantity(probe.quantity, probe.asked)
    expected = text.quantity(probe.quantity, probe.expected)
    if probe.expected is None or expected == asked:
        return f"configured {asked}"
    return f"expected {expected}, configured {asked}"


def _scaled(value: float | None, factor: float) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return value * factor
