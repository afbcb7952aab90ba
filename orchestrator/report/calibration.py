"""The plots of a calibration: configured and measured value of each quantity, for every measured link direction."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator import text
from orchestrator.report.figures import MANY_SERIES
from orchestrator.report.marks import Figure, axis, bars, figure, points
from orchestrator.results.record.history import History
from orchestrator.results.record.rows import ProbeResult

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


def calibration_figures(history: History) -> dict[str, Figure]:
    """A figure for each measured quantity, by its id on the page; empty unless the run is a calibration."""
    if history.outcome is None or history.outcome.ended != "calibrated":
        return {}
    return probe_figures(history.probes())


def probe_figures(probes: Sequence[ProbeResult]) -> dict[str, Figure]:
    """A figure for each quantity that was probed, by its id on the page."""
    return {
        f"calibration-{name}": _figure([probe for probe in probes if probe.quantity == name], title, unit, factor)
        for name, title, unit, factor in QUANTITIES
        if any(probe.quantity == name for probe in probes)
    }


def _figure(probes: Sequence[ProbeResult], title: str, unit: str, factor: float) -> Figure:
    """One row per direction: the accepted range as a bar, the configured value as a stroke, the measured as a dot."""
    numbered = list(enumerate(probes))
    bounds = [(row, _scaled(probe.low, factor), _scaled(probe.high, factor)) for row, probe in numbered]
    known = [(row, low, high) for row, low, high in bounds if low is not None and high is not None and high < 1e12]
    values = [f"configured {text.quantity(probe.quantity, probe.asked)}" for probe in probes]
    marks = [
        bars("accepted", [(low, high, row - 0.25, row + 0.25) for row, low, high in known], MANY_SERIES, opacity=0.45),
        points(
            "configured",
            [_scaled(probe.asked, factor) for probe in probes],
            [float(row) for row, _ in numbered],
            "var(--text)",
            size=16,
            stroke=True,
            notes=values,
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
    x, y = axis(f"{title}, {unit}", zero=True), axis(labels=[_label(probe) for probe in probes])
    return figure(f"{title.capitalize()}: configured and measured", x, y, marks, 34 * len(probes))


def _label(probe: ProbeResult) -> str:
    real = " (real)" if probe.kind == "real" else ""
    return f"{probe.link_class}: {probe.link}{real}"


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None or value != value or abs(value) == float("inf") else value * factor
