"""The record of a run as tables of pandas, for analysis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.results.record.catalogue import TABLES
from orchestrator.results.record.history import History

if TYPE_CHECKING:
    from pandas import DataFrame


def frame(rows: Iterable[Mapping[str, Any]], columns: Iterable[str] = ()) -> DataFrame:
    """A table of rows, with the named columns first if there is no row."""
    from pandas import DataFrame  # takes half a second

    found = list(rows)
    return DataFrame(found, columns=None if found else list(columns))


def accuracy(history: History) -> DataFrame:
    """Every accuracy: round, seconds, node, scope ("global", "own", …), value (fraction)."""
    return _table("accuracy", history)


def checks(history: History) -> DataFrame:
    """The checks of the verdict: name, verdict, detail."""
    return _table("checks", history)


def nodes(history: History) -> DataFrame:
    """The nodes of the plan: name, tier, parent, samples, model, hardware, speed, host, device."""
    return _table("nodes", history)


def sensors(history: History) -> DataFrame:
    """What hosts told about themselves: t, host, quantity, source, scope, value, detail."""
    return _table("sensors", history)


def _table(name: str, history: History) -> DataFrame:
    table = TABLES[name]
    return frame((row._asdict() for row in table.read(history)), table.row._fields)
