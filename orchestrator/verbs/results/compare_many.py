"""The comparison of any number of runs: one row for each run, and the settings in which any of them differ.

`compare` has more about two runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from orchestrator import text
from orchestrator.layout import Cell, write, write_entries, write_wide_table
from orchestrator.results.checks.verdicts import STYLES
from orchestrator.results.record.history import History
from orchestrator.results.summary import overview

ONCE = ("name", "algorithm", "driver", "seed", "ended")
"""The columns that are written once, above the table, if all runs have the same value."""
LEGEND = "accuracy: on the global test set at the end; by class of links: bytes delivered in training"


@dataclass(frozen=True)
class RunOverview:
    """One run of a comparison. ``row``: see `orchestrator.results.summary`."""

    row: dict[str, Any]
    status: str
    effective: dict[str, Any]
    tcp: dict[str, str]


@dataclass(frozen=True)
class ManyRuns:
    """The runs in the order in which they were given; ``differences`` has one value for each run, by setting.
    ``same_scenario``: every setting of the scenario is equal."""

    runs: tuple[RunOverview, ...]
    same_scenario: bool
    differences: dict[str, list[Any]]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        differences = [{"setting": setting, "values": values} for setting, values in self.differences.items()]
        return {
            "runs": [run.row for run in self.runs],
            "same_scenario": self.same_scenario,
            "differences": differences,
        }


def run_overview(history: History, summary: dict[str, Any] | None = None) -> RunOverview:
    """Read the data of a run, finished or not. ``summary``: that of the run, if it is known."""
    return RunOverview(overview(history, summary), history.status, history.effective, history.tcp)


def compare_many(runs: Sequence[RunOverview]) -> ManyRuns:
    """Compare any number of runs, which may have different scenarios."""
    settings = dict(differing([run.effective for run in runs]))
    return ManyRuns(tuple(runs), not settings, settings | dict(differing_tcp([run.tcp for run in runs])))


def print_many(compared: ManyRuns, console: Console) -> None:
    """Write the names of the runs under numbers, the settings that differ, and the table of the results."""
    numbers = [str(number) for number, _ in enumerate(compared.runs, start=1)]
    print_settings(compared, numbers, console)
    write(console, "", Text("results", style="bold"), Text(LEGEND, style="dim"))
    rows = [{**run.row, "ended": run.row["ended"] or run.status} for run in compared.runs]
    once = [name for name in ONCE if all(row[name] == rows[0][name] for row in rows)]
    if once:
        write(console, f"all runs: {', '.join(f'{name} {rows[0][name]}' for name in once)}")
    named = dict.fromkeys(name for row in rows for name in row if name not in ("run", *once))
    columns = [name for name in named if not name.startswith("bytes.") or any(row.get(name) for row in rows)]
    table = [
        (number, *(_value(name, row.get(name)) for name in columns)) for number, row in zip(numbers, rows, strict=True)
    ]
    figures = {place for place, name in enumerate(columns, start=1) if _writer(name) is not None}
    write_wide_table(console, ("run", *map(_heading, columns)), table, right=figures)


def differing(settings: Sequence[Any], path: str = "") -> Iterator[tuple[str, list[Any]]]:
    """The leaves at which nested settings are not all equal: the path in the scenario, and the value in each of them.
    The value is None for settings that do not have the leaf."""
    if all(isinstance(each, dict) for each in settings):
        for key in dict.fromkeys(key for each in settings for key in each):
            yield from differing([each.get(key) for each in settings], f"{path}.{key}" if path else str(key))
    elif all(isinstance(each, list) for each in settings) and len({len(each) for each in settings}) == 1:
        for index, items in enumerate(zip(*settings, strict=True)):
            yield from differing(items, f"{path}.{index}")
    elif any(each != settings[0] for each in settings):
        yield path, list(settings)


def differing_tcp(settings: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, list[Any]]]:
    """The TCP settings of nodes that are not equal in all runs that recorded them, by their names in sysctl(8)."""
    recorded = [each for each in settings if each]
    for name in dict.fromkeys(name for each in recorded for name in each):
        if len({each.get(name) for each in recorded}) > 1:
            yield f"net.ipv4.{name}", [each.get(name) for each in settings]


def shown_setting(value: Any) -> str:
    """A setting's value as text; "–" for None."""
    return "–" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def print_settings(compared: ManyRuns, names: Sequence[str], console: Console) -> None:
    """Write the ids of the runs, which have these names in the tables, and the settings that differ."""
    write_entries(console, [(name, run.row["run"]) for name, run in zip(names, compared.runs, strict=True)])
    write(console, "")
    if compared.same_scenario:
        write(console, Text.assemble(("same scenario", "bold"), ", every setting equal"))
    if compared.differences:
        write(console, Text("settings that differ", style="bold"))
        settings = [(setting, *map(shown_setting, values)) for setting, values in compared.differences.items()]
        write_wide_table(console, ("setting", *names), settings)


_WRITE: dict[str, Callable[[Any], str]] = {
    "rounds": text.number,
    "seconds": text.duration,
    "accuracy": text.percent,
    "bytes": text.size,
}


def _writer(column: str) -> Callable[[Any], str] | None:
    """What writes the figures of a column; None if it holds words."""
    kind, _, of = column.partition(".")
    return _WRITE.get(kind) or (text.number if of else None)


def _heading(column: str) -> str:
    """ "accuracy" for the column accuracy.global, "device-edge" for bytes.device-edge, "time" for seconds."""
    kind, _, of = column.partition(".")
    return {"bytes": of, "seconds": "time"}.get(kind, kind)


def _value(column: str, value: Any) -> Cell:
    write_figure = _writer(column)
    if value is None:
        return "–"
    return Text(str(value), style=STYLES.get(str(value), "")) if write_figure is None else write_figure(value)
