"""The checks and figures of plug-ins: made once, when a run has ended, and kept in its record.

Readers of the record then need no plug-in, and run no code of the run's user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from node.assignment import PluginSource
from node.plugins import Check, Draw, Rows, line_of
from orchestrator.record.directory import RunDirectory
from orchestrator.record.events.curves import Curves
from orchestrator.record.events.run import Checked, Note
from orchestrator.record.writer import Record
from orchestrator.results.checks.verdicts import WORST_FIRST
from orchestrator.results.history import History
from orchestrator.results.tables import rows_of
from orchestrator.scenario.catalogue import Catalogue


def record_results(catalogue: Catalogue, directory: RunDirectory, record: Record, t: float) -> None:
    """Record what the plug-ins of a run make of its record so far, which has an outcome. ``t``: the run's clock."""
    if not catalogue.checks and not catalogue.figures:
        return
    record.flush()
    with History.open(directory.path) as history:

        def rows(kind: str) -> list[dict[str, Any]]:
            return rows_of(history, kind)

        results = [
            *_checked(catalogue.checks, rows, catalogue.sources),
            *_drawn(catalogue.figures, rows, catalogue.sources),
        ]
    for event in results:
        record.add_event(t, event)


def _checked(
    checks: Mapping[str, Check],
    rows: Rows,
    sources: tuple[PluginSource, ...],
) -> list[Checked]:
    results = []
    for name, check in checks.items():
        try:
            assessment = check(rows)
            if assessment is None:
                continue
            verdict, detail = assessment
            if verdict not in WORST_FIRST:
                raise ValueError(f"{verdict!r} is no verdict: give {', '.join(WORST_FIRST)}")
            results.append(Checked(name, verdict, str(detail)))
        except Exception as error:  # a broken check must hide neither the others nor the run
            results.append(Checked(name, "unknown", f"the check itself broke: {_described(error, sources)}"))
    return results


def _drawn(
    figures: Mapping[str, Draw],
    rows: Rows,
    sources: tuple[PluginSource, ...],
) -> list[Curves | Note]:
    results: list[Curves | Note] = []
    for name, draw in figures.items():
        try:
            curves = draw(rows)
            if curves is not None:
                results.append(_plain(curves))
        except Exception as error:
            results.append(Note(f"the figure {name} cannot be drawn: {_described(error, sources)}"))
    return results


def _plain(curves: Any) -> Curves:
    """The figure with numbers as JSON has them. TypeError or ValueError if it is none."""
    if not isinstance(curves, Curves):
        raise TypeError(f"it returns a {type(curves).__name__}, not edgebed.Curves")
    lines = {}
    for name, points in curves.lines.items():
        plain = []
        for x, y in points:
            plain.append((float(x), float(y)))
        lines[str(name)] = plain
    return Curves(curves.title, curves.x, curves.y, lines)


def _described(error: Exception, sources: tuple[PluginSource, ...]) -> str:
    """An error, with file and line if a plug-in raised it."""
    text = f"{type(error).__name__}: {error}"
    place = line_of(error, sources)
    if place:
        return f"{place}: {text}"
    return text
