"""Fidelity of links and host, for the report: overloads, losses and what real links were, in words, and the figures of
configured and measured values of a calibration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from orchestrator import text
from orchestrator.record.events.links import LossAudit
from orchestrator.record.events.nodes import Late, Overrun
from orchestrator.record.events.overload import SATURATED
from orchestrator.record.rows import ProbeResult
from orchestrator.report.figures import MANY_SERIES
from orchestrator.report.marks import Figure, axis, bars, figure, points
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
MOST = 200  # overloads in the table, the longest ones; the record has all


def overload_rows(history: History) -> list[dict[str, str]]:
    """The periods in which the link engine or the host was overloaded, in words."""
    stretches = overloads(history)
    began = history.training_began or 0.0
    longest = sorted(stretches, key=lambda each: each.start - each.end)[:MOST]
    return [
        {
            "at": f"{each.start - began:.1f} s".replace("-", "−"),
            "lasted": text.duration(each.end - each.start),
            "what": ", ".join(each.effects),
            "cause": each.cause,
            "late": text.number(each.late) if each.late else "",
            "latest": text.duration(each.late_max) if each.late else "",
            "lost": ", ".join(f"{number:,} {where}" for where, number in each.lost.items()),
            "processors": text.percent(each.processors),
            "switch": text.percent(each.switch),
            "waiting": text.percent(each.waiting),
        }
        for each in sorted(longest, key=lambda each: each.start)
    ]


def mark_overloads(timeline: Figure, history: History) -> Figure:
    """The timeline with a shade over each overload."""
    began = history.training_began or 0.0
    shades = [
        {
            "x0": round(each.start - began, 3),
            "x1": round(each.end - began, 3),
            "colour": HARMLESS if each.effects == (SATURATED,) else HARMFUL,
        }
        for each in overloads(history)
    ]
    return timeline | ({"shades": shades} if shades else {})


def probe_rows(history: History) -> list[dict[str, Any]]:
    """The probes with asked and measured values, failed ones first."""
    order = [*map(str, WORST_FIRST), "measured"]
    rows = []
    for probe in sorted(
        history.probes(), key=lambda probe: order.index(probe.verdict) if probe.verdict in order else 1
    ):
        numbers = ("asked", "expected", "measured", "low", "high")
        rows.append(
            {
                **{"link": probe.link, "link_class": probe.link_class, "kind": probe.kind},
                **{name: text.quantity(probe.quantity, getattr(probe, name)) for name in numbers},
                **{"quantity": probe.quantity, "verdict": probe.verdict, "detail": probe.detail},
            }
        )
    return rows


def look_rows(history: History) -> list[dict[str, str]]:
    """The losses during the run: of each class of links, and of each link that deviated from its profile."""
    looks = history.recorded(LossAudit)
    if not looks:
        return []
    found = looks[-1].event
    astray = [{**each, "class": each["link"], "links": 1} for each in found.astray]
    return [
        {
            "links": f"{each['class']}" if each["links"] == 1 else f"{each['class']}, {each['links']} directions",
            "packets": text.number(each["packets"]),
            "lost": text.number(each["lost"]),
            "asked": text.loss(each["asked"]),
            "measured": text.loss(each["measured"]),
            "low": text.loss(each["low"]),
            "high": "any" if each["high"] is None else text.loss(each["high"]),
            "verdict": each["verdict"],
        }
        for each in (*astray, *found.classes)
    ]


def late_rows(history: History) -> list[dict[str, Any]]:
    """Abandoned rounds and late answers, by coordinator."""
    tally: defaultdict[str, dict[str, Any]] = defaultdict(lambda: {"late": 0, "abandoned": []})
    for event in history.events(Late.NAME):
        tally[event.node or ""]["late"] += 1
    for each in history.rounds():
        if each.abandoned:
            tally[each.node]["abandoned"].append(each)
    return [
        {"node": node, "late": of["late"], "abandoned": text.some(map(str, of["abandoned"]), 20)}
        for node, of in sorted(tally.items())
    ]


def overrun_rows(history: History) -> list[dict[str, Any]]:
    """The steps that took longer than the node's hardware needs, by node."""
    by_node: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for _, node, _, overrun in history.recorded(Overrun):
        by_node[node or ""].append((overrun.asked or 0.0, overrun.taken or 0.0))
    rows = []
    for node, steps in sorted(by_node.items()):
        requested, taken = max(steps, key=lambda step: step[1] - step[0])
        worst = f"{text.duration(taken)} instead of {text.duration(requested)}"
        rows.append({"node": node, "steps": len(steps), "worst": worst})
    return rows


def probe_figures(probes: Sequence[ProbeResult]) -> dict[str, Figure]:
    """A figure for each quantity that was probed, by its id on the page."""
    return {
        f"calibration-{name}": _figure([probe for probe in probes if probe.quantity == name], title, unit, factor)
        for name, title, unit, factor in QUANTITIES
        if any(probe.quantity == name for probe in probes)
    }


def _figure(probes: Sequence[ProbeResult], title: str, unit: str, factor: float) -> Figure:
    """One row per direction: the accepted range as a bar, the expected value as a stroke, the measured as a dot. The
    expected value is the middle of the range; the configured one may lie outside of it, for instance with jitter."""
    numbered = list(enumerate(probes))
    bounds = [(row, _scaled(probe.low, factor), _scaled(probe.high, factor)) for row, probe in numbered]
    known = [(row, low, high) for row, low, high in bounds if low is not None and high is not None and high < 1e12]
    expected = [probe.asked if probe.expected is None else probe.expected for probe in probes]
    marks = [
        bars("accepted", [(low, high, row - 0.25, row + 0.25) for row, low, high in known], MANY_SERIES, opacity=0.45),
        points(
            "expected",
            [_scaled(value, factor) for value in expected],
            [float(row) for row, _ in numbered],
            "var(--text)",
            size=16,
            stroke=True,
            notes=list(map(_expected_in_words, probes)),
        ),
    ]
    for verdict, colour in COLOURS.items():
        found = [(row, probe) for row, probe in numbered if probe.verdict == verdict and probe.measured is not None]
        if found:
            marks.append(
                points(
                    "measured: real" if verdict == "measured" else f"measured: {verdict}",
                    [_scaled(probe.measured, factor) for _, probe in found],
                    [float(row) for row, _ in found],
                    colour,
                    notes=[f"measured {text.quantity(of.quantity, of.measured)}, {of.detail}" for _, of in found],
                )
            )
    labels = [f"{probe.link_class}: {probe.link}{' (real)' * (probe.kind == 'real')}" for probe in probes]
    x = axis(f"{title}, {unit}", zero=True)
    y = axis(labels=labels)
    return figure(f"{title.capitalize()}: expected and measured", x, y, marks, 34 * len(probes))


def _expected_in_words(probe: ProbeResult) -> str:
    """The expected value, and the configured one if it reads differently."""
    configured = f"configured {text.quantity(probe.quantity, probe.asked)}"
    expected = text.quantity(probe.quantity, probe.expected)
    if probe.expected is None or expected == text.quantity(probe.quantity, probe.asked):
        return configured
    return f"expected {expected}, {configured}"


def _scaled(value: float | None, factor: float) -> float | None:
    if value is None or value != value or abs(value) == float("inf"):
        return None
    return value * factor
