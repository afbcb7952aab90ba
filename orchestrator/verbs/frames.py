"""The record of a run as tables of pandas, for analysis. pandas is an extra: `pip install edgebed[analysis]`."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.errors import RunError
from orchestrator.results.history import History
from orchestrator.results.summary import summary

if TYPE_CHECKING:
    from pandas import DataFrame


def frame(rows: Iterable[Mapping[str, Any]], columns: Iterable[str] = ()) -> DataFrame:
    """A table of rows, with the named columns first if there is no row. RunError if pandas is not installed."""
    try:
        pandas: Any = importlib.import_module("pandas")
    except ImportError:
        raise RunError("tables need pandas: pip install 'edgebed[analysis]'") from None
    found = list(rows)
    table: DataFrame = pandas.DataFrame(found, columns=None if found else list(columns))
    return table


def accuracy(history: History) -> DataFrame:
    """Every accuracy: round, seconds, node, scope ("global", "own", …), value (fraction)."""
    columns = ("round", "seconds", "node", "scope", "value")
    metrics = history.metrics("accuracy")
    return frame((dict(zip(columns, (m.round, m.t, m.node, m.scope, m.value), strict=True)) for m in metrics), columns)


def checks(history: History) -> DataFrame:
    """The checks of the verdict: name, verdict, detail."""
    return frame(summary(history)["checks"], ("name", "verdict", "detail"))


def nodes(history: History) -> DataFrame:
    """The nodes of the plan: name, tier, parent, hardware, samples, model."""
    rows = (
        {name: node[name] for name in ("name", "tier", "parent", "samples", "model")}
        | {"hardware": node["hardware"]["name"], "speed": node["hardware"]["speed"]}
        for node in history.plan["nodes"]
    )
    return frame(rows)
