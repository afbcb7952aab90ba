"""The comparison of runs: one row for each run, and the settings in which any of them differ; and of two runs, the
results one by one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from orchestrator.results.overview import other_metrics, overview
from orchestrator.results.steps import steps
from orchestrator.results.summary import finite, summary

ONCE = ("name", "algorithm", "driver", "seed", "ended")
"""The columns that are written once, above the table, if all runs have the same value."""
LEGEND = "accuracy: on the global test set at the end; by class of links: bytes delivered in training"
TARGETS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99)
"""Target accuracies. The time to each target that a run reached is compared."""
Row = Mapping[str, Any]
Difference = tuple[str, list[Any]]
"""The name of a setting, and its value in each run."""

_WRITE: dict[str, Callable[[float], str]] = {
    "fraction": text.percent,
    "s": text.duration,
    "bytes": text.size,
    "count": text.number,
    "number": text.number,
}


_UNITS = {
    "rounds": "count",
    "seconds": "s",
    "accuracy": "fraction",
    "bytes": "bytes",
}


@dataclass(frozen=True)
class RunOverview:
    """One run of a comparison. ``row``: see `orchestrator.results.overview`. ``accuracy``: of the global model, by
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
        differences = []
        for setting, values in self.differences.items():
            differences.append({"setting": setting, "values": values})
        return {
            "runs": [run.row for run in self.runs],
            "same_scenario": self.same_scenario,
            "differences": differences,
        }


def run_overview(history: History) -> RunOverview:
    """Read the data of a run, finished or not."""
    result = summary(history)
    began = history.training_began or 0.0
    series = accuracy_series(history, "global")
    values = [report.value for report in series]
    accuracy = dict(zip(steps(series), values, strict=True))
    reached = {}
    for target in TARGETS:
        first = first_at(series, target)
        if first is not None:
            reached[target] = first.t - began
    return RunOverview(
        row=overview(history, result),
        status=history.status,
        effective=history.effective,
        tcp=history.tcp,
        summary=result,
        accuracy=accuracy,
        reached=reached,
    )


def compare_many(runs: Sequence[RunOverview]) -> ManyRuns:
    """Compare any number of runs, which may have different scenarios."""
    scenarios = [run.effective for run in runs]
    settings = dict(differing(scenarios))
    tcp = [run.tcp for run in runs]
    tcp_settings = dict(differing_tcp(tcp))
    return ManyRuns(
        runs=tuple(runs),
        same_scenario=not settings,
        differences=settings | tcp_settings,
    )


def print_many(compared: ManyRuns, console: Console) -> None:
    """Write the names of the runs under numbers, the settings that differ, and the table of the results."""
    numbers = []
    for index in range(len(compared.runs)):
        numbers.append(str(index + 1))
    print_settings(compared, numbers, console)
    write(console, "")
    write(console, Text("results", style="bold"))
    write(console, Text(LEGEND, style="dim"))
    rows = _rows(compared.runs)
    once = [name for name in ONCE if _all_equal(rows, name)]
    if once:
        common = ", ".join(f"{name} {rows[0][name]}" for name in once)
        write(console, f"all runs: {common}")
    columns = _columns(rows, once)
    headings = ["run"]
    headings.extend(map(_heading, columns))
    table = []
    for number, row in zip(numbers, rows, strict=True):
        table.append([number, *_cells(row, columns)])
    write_wide_table(console, headings, table, right=_figures(columns))


def latex(compared: ManyRuns) -> str:
    """The results of the runs as a table for LaTeX, with a row for each run and its id."""
    rows = _rows(compared.runs)
    columns = _columns(rows, ())
    headings = [["run"]]
    for name in columns:
        headings.append([_heading(name)])
    table = []
    for row in rows:
        cells = [[str(row["run"])]]
        for cell in _cells(row, columns):
            cells.append([str(cell)])
        table.append(cells)
    return tabular(headings, table, _figures(columns))


def _rows(runs: Sequence[RunOverview]) -> list[dict[str, Any]]:
    """A row for each run. The status of a run stands for how it ended, as long as it has not ended."""
    rows = []
    for run in runs:
        ended = run.row["ended"] or run.status
        rows.append({**run.row, "ended": ended})
    return rows


def _all_equal(rows: Sequence[Row], column: str) -> bool:
    first = rows[0][column]
    return all(row[column] == first for row in rows)


def _columns(rows: Sequence[Row], once: Sequence[str]) -> list[str]:
    """The names of the columns of a table of runs, without those of ``once`` and of links without bytes."""
    columns = []
    for name in _keys(rows):
        if name == "run" or name in once:
            continue
        if name.startswith("bytes.") and _without_bytes(rows, name):
            continue
        columns.append(name)
    return columns


def _without_bytes(rows: Sequence[Row], column: str) -> bool:
    return not any(row.get(column) for row in rows)


def _keys(mappings: Iterable[Mapping[Any, Any]]) -> dict[Any, None]:
    """The keys that any of the mappings has, in the order in which they first occur."""
    keys: dict[Any, None] = {}
    for mapping in mappings:
        keys.update(dict.fromkeys(mapping))
    return keys


def _cells(row: Row, columns: Sequence[str]) -> list[Cell]:
    cells = []
    for name in columns:
        unit = _unit(name)
        cells.append(_value(row.get(name), unit))
    return cells


def _figures(columns: Sequence[str]) -> set[int]:
    """The places of the columns of numbers, after that of the run."""
    places = set()
    for place, name in enumerate(columns, start=1):
        if _unit(name) != "text":
            places.add(place)
    return places


def differing(settings: Sequence[Any], path: str = "") -> Iterator[Difference]:
    """The leaves at which nested settings are not all equal: the path in the scenario, and the value in each of them.
    The value is None for settings that do not have the leaf."""
    if all(isinstance(setting, dict) for setting in settings):
        for key in _keys(settings):
            values = [setting.get(key) for setting in settings]
            below = f"{path}.{key}" if path else str(key)
            yield from differing(values, below)
    elif _are_lists_of_one_length(settings):
        for index in range(len(settings[0])):
            items = [setting[index] for setting in settings]
            yield from differing(items, f"{path}.{index}")
    elif any(setting != settings[0] for setting in settings):
        yield path, list(settings)


def _are_lists_of_one_length(settings: Sequence[Any]) -> bool:
    if not all(isinstance(setting, list) for setting in settings):
        return False
    lengths = {len(setting) for setting in settings}
    return len(lengths) == 1


def differing_tcp(settings: Sequence[Mapping[str, str]]) -> Iterator[Difference]:
    """The TCP settings of nodes that are not equal in all runs that recorded them, by their names in sysctl(8)."""
    recorded = [tcp for tcp in settings if tcp]
    for name in _keys(recorded):
        different_values = {tcp.get(name) for tcp in recorded}
        if len(different_values) > 1:
            values = [tcp.get(name) for tcp in settings]
            yield f"net.ipv4.{name}", values


def shown_setting(value: Any) -> str:
    """A setting's value as text; "–" for None."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def print_settings(compared: ManyRuns, names: Sequence[str], console: Console) -> None:
    """Write the ids of the runs, which have these names in the tables, and the settings that differ."""
    ids: list[tuple[Cell, Cell]] = []
    for name, run in zip(names, compared.runs, strict=True):
        ids.append((name, run.row["run"]))
    write_entries(console, ids)
    write(console, "")
    if compared.same_scenario:
        same = ("same scenario", "bold")
        write(console, Text.assemble(same, ", every setting equal"))
    if compared.differences:
        write(console, Text("settings that differ", style="bold"))
        rows = []
        for setting, values in compared.differences.items():
            rows.append([setting, *map(shown_setting, values)])
        write_wide_table(console, ("setting", *names), rows)


def _unit(column: str) -> str:
    """The unit of a column's figures, see `ComparedFigure`."""
    kind, _, part = column.rpartition(".")  # the name of a metric may have dots
    unit = _UNITS.get(kind or part)
    if unit is not None:
        return unit
    return "number" if kind else "text"


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
        if self.a is None or isinstance(self.a, str):
            return None
        if self.b is None or isinstance(self.b, str):
            return None
        return self.b - self.a


@dataclass(frozen=True)
class RunComparison:
    """Two runs, a and b. ``rows``: their results."""

    both: ManyRuns
    rows: tuple[ComparedFigure, ...]

    def to_json(self) -> dict[str, Any]:
        run_a, run_b = self.both.runs
        differences = []
        for setting, values in self.both.differences.items():
            value_a, value_b = values
            differences.append({"setting": setting, "a": value_a, "b": value_b})
        rows = []
        for row in self.rows:
            rows.append({**asdict(row), "change": row.change})
        return {
            "a": run_a.row["run"],
            "b": run_b.row["run"],
            "same_scenario": self.both.same_scenario,
            "differences": differences,
            "rows": rows,
        }


def compare(a: RunOverview, b: RunOverview) -> RunComparison:
    """Compare two runs, which may have different scenarios."""
    one = a.summary
    other = b.summary
    ended_a = one["ended"] or a.status
    ended_b = other["ended"] or b.status
    accuracy_a = one["accuracy"]["global"]
    accuracy_b = other["accuracy"]["global"]
    metrics_a = other_metrics(one)
    metrics_b = other_metrics(other)
    faults_a = _faults_made(one)
    faults_b = _faults_made(other)
    verdicts_a = _verdicts(one)
    verdicts_b = _verdicts(other)
    rows = [
        ComparedFigure("verdict", "text", one["verdict"], other["verdict"]),
        ComparedFigure("ended", "text", ended_a, ended_b),
        ComparedFigure("rounds", "count", one["rounds"], other["rounds"]),
        ComparedFigure("time", "s", one["seconds"], other["seconds"]),
        ComparedFigure("accuracy at the end", "fraction", accuracy_a, accuracy_b),
        *_by_key("{} at the end", "number", metrics_a, metrics_b),
        *_accuracy_at_rounds(a, b),
        *_time_to_accuracy(a, b),
        *_by_key("delivered: {}", "bytes", one["bytes"], other["bytes"]),
        *_by_key("messages: {}", "count", one["messages"], other["messages"]),
        ComparedFigure("faults made", "count", faults_a, faults_b),
        ComparedFigure("overruns", "count", one["overruns"], other["overruns"]),
        *_by_key("check: {}", "text", verdicts_a, verdicts_b),
    ]
    both = compare_many([a, b])
    return RunComparison(both, tuple(rows))


def print_comparison(comparison: RunComparison, console: Console) -> None:
    """Write the ids of the runs, then a table of the settings that differ and a table of the results."""
    print_settings(comparison.both, ("a", "b"), console)
    write(console, "")
    rows = []
    for row in comparison.rows:
        value_a = _value(row.a, row.unit)
        value_b = _value(row.b, row.unit)
        change = _change(row)
        rows.append([row.name, value_a, value_b, change])
    headings = ("", "a", "b", "b − a")
    figures = {1, 2, 3}
    write_table(console, headings, rows, title="results", right=figures)


def _accuracy_at_rounds(a: RunOverview, b: RunOverview) -> list[ComparedFigure]:
    """The accuracies at the last round that both runs have, and at the middle one of their common rounds."""
    common = [round for round in sorted(a.accuracy) if round in b.accuracy]
    if not common:
        return []
    middle = (len(common) - 1) // 2
    rounds = {common[middle], common[-1]}
    rows = []
    for round in sorted(rounds):
        accuracy_a = finite(a.accuracy[round])
        accuracy_b = finite(b.accuracy[round])
        name = f"accuracy at round {round}"
        rows.append(ComparedFigure(name, "fraction", accuracy_a, accuracy_b))
    return rows


def _time_to_accuracy(a: RunOverview, b: RunOverview) -> list[ComparedFigure]:
    """Seconds of training to the three highest targets that at least one run reached."""
    rows = []
    for target in TARGETS:
        if target in a.reached or target in b.reached:
            time_a = a.reached.get(target)
            time_b = b.reached.get(target)
            name = f"time to {target:.0%}"
            rows.append(ComparedFigure(name, "s", time_a, time_b))
    return rows[-3:]


def _by_key(
    name: str,
    unit: str,
    a: Row,
    b: Row,
) -> list[ComparedFigure]:
    rows = []
    for key in _keys([a, b]):
        value_a = a.get(key)
        value_b = b.get(key)
        rows.append(ComparedFigure(name.format(key), unit, value_a, value_b))
    return rows


def _faults_made(result: Row) -> int:
    count = 0
    for fault in result["faults"]:
        if fault["at"] is not None:
            count += 1
    return count


def _verdicts(result: Row) -> dict[str, str]:
    verdicts = {}
    for check in result["checks"]:
        verdicts[check["name"]] = check["verdict"]
    return verdicts


def _value(value: Any, unit: str) -> Cell:
    if value is None:
        return "–"
    if unit == "text":
        word = str(value)
        return Text(word, style=STYLES.get(word, ""))
    return _WRITE[unit](value)


def _change(row: ComparedFigure) -> str:
    change = row.change
    if change is None:
        if row.a == row.b or row.unit != "text":
            return ""
        return "differs"
    if change == 0:
        return "="
    sign = "+" if change > 0 else "−"
    if row.unit == "fraction":
        return f"{sign}{abs(change) * 100:.1f} points"
    size = _WRITE[row.unit](abs(change))
    base = abs(float(row.a or 0))
    if not base:
        return f"{sign}{size}"
    relative = f"{change / base:+.0%}".replace("-", "−")
    return f"{sign}{size} ({relative})"
