"""The comparison of runs: one row for each run, and the settings in which any of them differ; and of two runs, the
results one by one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from orchestrator import text
from orchestrator.latex import tabular
from orchestrator.layout import Cell, write, write_entries, write_table, write_wide_table
from orchestrator.results.checks.verdicts import STYLES
from orchestrator.results.evaluation.targets import accuracy_series, first_at
from orchestrator.results.history import History
from orchestrator.results.steps import steps
from orchestrator.results.summary import finite, other_metrics, overview, summary

ONCE = ("name", "algorithm", "driver", "seed", "ended")
"""The columns that are written once, above the table, if all runs have the same value."""
LEGEND = "accuracy: on the global test set at the end; by class of links: bytes delivered in training"
TARGETS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99)
"""Target accuracies. The time to each target that a run reached is compared."""
_WRITE: dict[str, Callable[[float], str]] = {
    "fraction": text.percent,
    "s": text.duration,
    "bytes": text.size,
    "count": text.number,
    "number": text.number,
}


@dataclass(frozen=True)
class RunOverview:
    """One run of a comparison. ``row``: see `orchestrator.results.summary`. ``accuracy``: of the global model, by
    round. ``reached``: seconds of training by target accuracy."""

    row: dict[str, Any]
    status: str
    effective: dict[str, Any]
    tcp: dict[str, str]
    summary: dict[str, Any]
    accuracy: dict[int, float]
    reached: dict[float, float]


@dataclass(frozen=True)
class ManyRuns:
    """The runs in the order in which they were given; ``differences`` has one value for each run, by setting.
    ``same_scenario``: every setting of the scenario is equal."""

    runs: tuple[RunOverview, ...]
    same_scenario: bool
    differences: dict[str, list[Any]]

    def to_json(self) -> dict[str, Any]:
        differences = [{"setting": setting, "values": values} for setting, values in self.differences.items()]
        return {
            "runs": [run.row for run in self.runs],
            "same_scenario": self.same_scenario,
            "differences": differences,
        }


def run_overview(history: History) -> RunOverview:
    """Read the data of a run, finished or not."""
    found = summary(history)
    began = history.training_began or 0.0
    series = accuracy_series(history, "global")
    reached = {target: first_at(series, target) for target in TARGETS}
    return RunOverview(
        row=overview(history, found),
        status=history.status,
        effective=history.effective,
        tcp=history.tcp,
        summary=found,
        accuracy={step: row.value for step, row in zip(steps(series), series, strict=True)},
        reached={target: first.t - began for target, first in reached.items() if first is not None},
    )


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
    columns = _columns(rows, once)
    table = [(number, *_cells(row, columns)) for number, row in zip(numbers, rows, strict=True)]
    write_wide_table(console, ("run", *map(_heading, columns)), table, right=_figures(columns))


def latex(compared: ManyRuns) -> str:
    """The results of the runs as a table for LaTeX, with a row for each run and its id."""
    rows = [{**run.row, "ended": run.row["ended"] or run.status} for run in compared.runs]
    columns = _columns(rows, ())
    headings = [["run"], *([_heading(name)] for name in columns)]
    cells = [[[str(row["run"])], *([str(cell)] for cell in _cells(row, columns))] for row in rows]
    return tabular(headings, cells, _figures(columns))


def _columns(rows: Sequence[Mapping[str, Any]], once: Sequence[str]) -> list[str]:
    """The names of the columns of a table of runs, without those of ``once`` and of links without bytes."""
    named = dict.fromkeys(name for row in rows for name in row if name not in ("run", *once))
    return [name for name in named if not name.startswith("bytes.") or any(row.get(name) for row in rows)]


def _cells(row: Mapping[str, Any], columns: Sequence[str]) -> list[Cell]:
    return [_value(row.get(name), _unit(name)) for name in columns]


def _figures(columns: Sequence[str]) -> set[int]:
    """The places of the columns of numbers, after that of the run."""
    return {place for place, name in enumerate(columns, start=1) if _unit(name) != "text"}


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
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


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


def _unit(column: str) -> str:
    """The unit of a column's figures, see `ComparedFigure`."""
    units = {"rounds": "count", "seconds": "s", "accuracy": "fraction", "bytes": "bytes"}
    kind, _, part = column.rpartition(".")  # the name of a metric may have dots
    return units.get(kind or part) or ("number" if kind else "text")


def _heading(column: str) -> str:
    """ "accuracy" for the column accuracy.global, "device-edge" for bytes.device-edge, "time" for seconds."""
    kind, _, part = column.rpartition(".")
    if kind == "bytes":
        return part
    if column == "seconds":
        return "time"
    return kind or part


@dataclass(frozen=True)
class ComparedFigure:
    """One figure of both runs. ``unit`` is "fraction", "s", "bytes", "count", "number" or "text"."""

    name: str
    unit: str
    a: float | str | None
    b: float | str | None

    @property
    def change(self) -> float | None:
        """b - a if both are numbers, otherwise None."""
        if isinstance(self.a, str) or isinstance(self.b, str) or self.a is None or self.b is None:
            return None
        return self.b - self.a


@dataclass(frozen=True)
class RunComparison:
    """Two runs, a and b. ``rows``: their results."""

    both: ManyRuns
    rows: tuple[ComparedFigure, ...]

    def to_json(self) -> dict[str, Any]:
        a, b = (run.row["run"] for run in self.both.runs)
        differences = [{"setting": setting, "a": x, "b": y} for setting, (x, y) in self.both.differences.items()]
        rows = [{**asdict(row), "change": row.change} for row in self.rows]
        return {"a": a, "b": b, "same_scenario": self.both.same_scenario, "differences": differences, "rows": rows}


def compare(a: RunOverview, b: RunOverview) -> RunComparison:
    """Compare two runs, which may have different scenarios."""
    one = a.summary
    other = b.summary
    rows = [
        ComparedFigure("verdict", "text", one["verdict"], other["verdict"]),
        ComparedFigure("ended", "text", one["ended"] or a.status, other["ended"] or b.status),
        ComparedFigure("rounds", "count", one["rounds"], other["rounds"]),
        ComparedFigure("time", "s", one["seconds"], other["seconds"]),
        ComparedFigure("accuracy at the end", "fraction", one["accuracy"]["global"], other["accuracy"]["global"]),
        *_by_key("{} at the end", "number", *map(other_metrics, (one, other))),
        *_accuracy_at_rounds(a, b),
        *_time_to_accuracy(a, b),
        *_by_key("delivered: {}", "bytes", one["bytes"], other["bytes"]),
        *_by_key("messages: {}", "count", one["messages"], other["messages"]),
        ComparedFigure("faults made", "count", _made(one), _made(other)),
        ComparedFigure("overruns", "count", one["overruns"], other["overruns"]),
        *_by_key("check: {}", "text", _verdicts(one), _verdicts(other)),
    ]
    return RunComparison(compare_many([a, b]), tuple(rows))


def print_comparison(comparison: RunComparison, console: Console) -> None:
    """Write the ids of the runs, then a table of the settings that differ and a table of the results."""
    print_settings(comparison.both, ("a", "b"), console)
    write(console, "")
    results = [(row.name, _value(row.a, row.unit), _value(row.b, row.unit), _change(row)) for row in comparison.rows]
    write_table(console, ("", "a", "b", "b − a"), results, title="results", right={1, 2, 3})


def _accuracy_at_rounds(a: RunOverview, b: RunOverview) -> list[ComparedFigure]:
    """The accuracies at the last round that both runs have, and at the middle one of their common rounds."""
    common = sorted(a.accuracy.keys() & b.accuracy.keys())
    if not common:
        return []
    chosen = sorted({common[(len(common) - 1) // 2], common[-1]})
    return [
        ComparedFigure(f"accuracy at round {round}", "fraction", finite(a.accuracy[round]), finite(b.accuracy[round]))
        for round in chosen
    ]


def _time_to_accuracy(a: RunOverview, b: RunOverview) -> list[ComparedFigure]:
    """Seconds of training to the three highest targets that at least one run reached."""
    rows = [
        ComparedFigure(f"time to {target:.0%}", "s", a.reached.get(target), b.reached.get(target)) for target in TARGETS
    ]
    return [row for row in rows if row.a is not None or row.b is not None][-3:]


def _by_key(name: str, unit: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> list[ComparedFigure]:
    keys = dict.fromkeys([*a, *b])
    return [ComparedFigure(name.format(key), unit, a.get(key), b.get(key)) for key in keys]


def _made(result: Mapping[str, Any]) -> int:
    return sum(1 for fault in result["faults"] if fault["at"] is not None)


def _verdicts(result: Mapping[str, Any]) -> dict[str, str]:
    return {check["name"]: check["verdict"] for check in result["checks"]}


def _value(value: Any, unit: str) -> Cell:
    if value is None:
        return "–"
    if unit == "text":
        return Text(str(value), style=STYLES.get(str(value), ""))
    return _WRITE[unit](value)


def _change(row: ComparedFigure) -> str:
    if row.change is None:
        if row.a == row.b or row.unit != "text":
            return ""
        return "differs"
    if row.change == 0:
        return "="
    if row.unit == "fraction":
        return f"{'+' if row.change > 0 else '−'}{abs(row.change) * 100:.1f} points"
    size = _WRITE[row.unit](abs(row.change))
    base = abs(float(row.a or 0))
    relative = f" ({row.change / base:+.0%})".replace("-", "−") if base else ""
    return f"{'+' if row.change > 0 else '−'}{size}{relative}"
