"""The plots of a calibration: asked and measured value of each quantity, for every measured link direction."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from orchestrator import text
from orchestrator.report.figures import MANY_SERIES, Figure
from orchestrator.results.history import History
from orchestrator.results.rows import ProbeResult

COLOURS = {"pass": "#2b7a4b", "fail": "#b0342b", "unknown": "#b98900"}
# Quantity, title, unit on the page, and how many of this unit are one unit of the record.
QUANTITIES = (
    ("rtt", "round trip", "ms", 1e3),
    ("delay", "one way", "ms", 1e3),
    ("loss", "loss", "%", 1e2),
    ("burst", "mean burst of losses", "packets", 1.0),
    ("rate", "rate", "Mbit/s", 1e-6),
    ("queue", "queue when saturated", "ms", 1e3),
)


def calibration_figures(history: History) -> dict[str, Figure]:
    """A figure for each measured quantity, by its id on the page; empty unless the run is a calibration."""
    if history.outcome is None or history.outcome.ended != "calibrated":
        return {}
    probes = history.probes()
    return {
        f"calibration-{name}": _figure([probe for probe in probes if probe.quantity == name], title, unit, factor)
        for name, title, unit, factor in QUANTITIES
        if any(probe.quantity == name for probe in probes)
    }


def _figure(probes: Sequence[ProbeResult], title: str, unit: str, factor: float) -> Figure:
    """One row per direction: the accepted range as a bar, the asked value as a stroke, the measured value as a dot."""
    labels = [html.escape(f"{probe.link_class}: {probe.source} → {probe.target}") for probe in probes]
    asked = [_scaled(probe.asked, factor) for probe in probes]
    bounds = [(_scaled(probe.low, factor), _scaled(probe.high, factor)) for probe in probes]
    known = [
        (label, low, high)
        for label, (low, high) in zip(labels, bounds, strict=True)
        if low is not None and high is not None and abs(high) < 1e12
    ]
    traces: list[dict[str, Any]] = [
        {
            **{"type": "bar", "orientation": "h", "name": "accepted", "width": 0.5},
            **{"y": [label for label, _, _ in known], "base": [low for _, low, _ in known]},
            **{"x": [high - low for _, low, high in known], "marker": {"color": MANY_SERIES, "opacity": 0.45}},
            **{"hoverinfo": "skip"},
        },
        {
            **{"type": "scatter", "mode": "markers", "name": "asked", "x": asked, "y": labels},
            "marker": {"symbol": "line-ns-open", "size": 16, "color": "#5b7391", "line": {"width": 2}},
            "hovertext": [f"asked {text.quantity(probe.quantity, probe.asked)}" for probe in probes],
            "hoverinfo": "text",
        },
    ]
    for verdict, colour in COLOURS.items():
        found = [probe for probe in probes if probe.verdict == verdict and probe.measured is not None]
        if found:
            traces.append(
                {
                    **{"type": "scatter", "mode": "markers", "name": f"measured: {verdict}"},
                    "x": [_scaled(probe.measured, factor) for probe in found],
                    "y": [html.escape(f"{probe.link_class}: {probe.source} → {probe.target}") for probe in found],
                    "marker": {"size": 8, "color": colour},
                    "hovertext": [
                        f"measured {text.quantity(probe.quantity, probe.measured)}, {html.escape(probe.detail)}"
                        for probe in found
                    ],
                    "hoverinfo": "text",
                }
            )
    layout = {
        "xaxis": {"title": {"text": f"{title}, {unit}"}, "rangemode": "tozero"},
        "yaxis": {"type": "category", "autorange": "reversed", "showgrid": False},
        "barmode": "overlay",
        "showlegend": True,
    }
    return {"data": traces, "layout": layout, "height": 120 + 34 * len(probes)}


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None or value != value or abs(value) == float("inf") else value * factor
