"""The comparison of two runs: what `compare_many` tells of any number, and the results one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from orchestrator import text
from orchestrator.layout import Cell, write, write_table
from orchestrator.results.checks.verdicts import STYLES
from orchestrator.results.evaluation.targets import accuracy_series, first_at
from orchestrator.results.record.history import History
from orchestrator.results.summary import finite, summary
from orchestrator.verbs.results.compare_many import ManyRuns, RunOverview, compare_many, print_settings, run_overview

TARGETS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99)
"""Target accuracies. The time to each target that a run reached is compared."""


@dataclass(frozen=True)
class ComparedFigure:
    """One figure of both runs. ``unit`` is "fraction", "s", "bytes", "count" or "text"."""

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
        """Plain JSON values. Each row also has its change."""
        a, b = (run.row["run"] for run in self.both.runs)
        differences = [{"setting": setting, "a": x, "b": y} for setting, (x, y) in self.both.differences.items()]
        rows = [{**asdict(row), "change": row.change} for row in self.rows]
        return {"a": a, "b": b, "same_scenario": self.both.same_scenario, "differences": differences, "rows": rows}


@dataclass(frozen=True)
class Side(RunOverview):
    """A run to be compared. ``accuracy``: by round. ``reached``: seconds of training by target accuracy."""

    summary: dict[str, Any]
    accuracy: dict[int, float]
    reached: dict[float, float]


def side(history: History) -> Side:
    """Read the data of a run, finished or not."""
    began, series = history.training_began or 0.0, accuracy_series(history, "global")
    reached = {target: first_at(series, target) for target in TARGETS}
    return Side(
        **vars(run_overview(history, found := summary(history))),
        summary=found,
        accuracy={row.round: row.value for row in history.global_series("accuracy") if row.round is not None},
        reached={target: first.t - began for target, first in reached.items() if first is not None},
    )


def compare(a: Side, b: Side) -> RunComparison:
    """Compare two runs, which may have different scenarios."""
    one, other = a.summary, b.summary
    rows = [
        ComparedFigure("verdict", "text", one["verdict"], other["verdict"]),
        ComparedFigure("ended", "text", one["ended"] or a.status, other["ended"] or b.status),
        ComparedFigure("rounds", "count", one["rounds"], other["rounds"]),
        ComparedFigure("time", "s", one["seconds"], other["seconds"]),
        ComparedFigure("accuracy at the end", "fraction", one["accuracy"]["global"], other["accuracy"]["global"]),
        *_metrics(one.get("metrics") or {}, other.get("metrics") or {}),
        *_accuracy_at_rounds(a, b),
        *_time_to_accuracy(a, b),
        *_by_key("delivered", "bytes", one["bytes"], other["bytes"]),
        *_by_key("messages", "count", one["messages"], other["messages"]),
        ComparedFigure("faults made", "count", _made(one), _made(other)),
        ComparedFigure("overruns", "count", one["overruns"], other["overruns"]),
        *_by_key("check", "text", _verdicts(one), _verdicts(other)),
    ]
    return RunComparison(compare_many([a, b]), tuple(rows))


def print_comparison(comparison: RunComparison, console: Console) -> None:
    """Write the ids of the runs, then a table of the settings that differ and a table of the results."""
    print_settings(comparison.both, ("a", "b"), console)
    write(console, "")
    results = [(row.name, _value(row.a, row.unit), _value(row.b, row.unit), _change(row)) for row in comparison.rows]
    write_table(console, ("", "a", "b", "b − a"), results, title="results", right={1, 2, 3})


def _metrics(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[ComparedFigure]:
    """The other metrics at the end, without the loss."""
    return [
        ComparedFigure(f"{name} at the end", "number", a.get(name), b.get(name))
        for name in dict.fromkeys([*a, *b])
        if name != "loss"
    ]


def _accuracy_at_rounds(a: Side, b: Side) -> list[ComparedFigure]:
    """The accuracies at the last round that both runs have, and at the middle one of their common rounds."""
    common = sorted(a.accuracy.keys() & b.accuracy.keys())
    if not common:
        return []
    chosen = sorted({common[(len(common) - 1) // 2], common[-1]})
    return [
        ComparedFigure(f"accuracy at round {round}", "fraction", finite(a.accuracy[round]), finite(b.accuracy[round]))
        for round in chosen
    ]


def _time_to_accuracy(a: Side, b: Side) -> list[ComparedFigure]:
    """Seconds of training to the three highest targets that at least one run reached."""
    rows = [
        ComparedFigure(f"time to {target:.0%}", "s", a.reached.get(target), b.reached.get(target)) for target in TARGETS
    ]
    return [row for row in rows if row.a is not None or row.b is not None][-3:]


def _by_key(name: str, unit: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> list[ComparedFigure]:
    return [ComparedFigure(f"{name}: {key}", unit, a.get(key), b.get(key)) for key in dict.fromkeys([*a, *b])]


def _made(result: Mapping[str, Any]) -> int:
    return sum(1 for fault in result["faults"] if fault["at"] is not None)


def _verdicts(result: Mapping[str, Any]) -> dict[str, str]:
    return {check["name"]: check["verdict"] for check in result["checks"]}


_WRITE: dict[str, Callable[[float], str]] = {
    "fraction": text.percent,
    "s": text.duration,
    "bytes": text.size,
    "count": text.number,
}


def _value(value: float | str | None, unit: str) -> Cell:
    if value is None:
        return "–"
    if isinstance(value, str):
        return Text(value, style=STYLES.get(value, ""))
    return _WRITE[unit](value)


def _change(row: ComparedFigure) -> str:
    if row.change is None:
        return "" if row.a == row.b or row.unit != "text" else "differs"
    if row.change == 0:
        return "="
    if row.unit == "fraction":
        return f"{'+' if row.change > 0 else '−'}{abs(row.change) * 100:.1f} points"
    size = _WRITE[row.unit](abs(row.change))
    relative = f" ({row.change / row.a:+.0%})".replace("-", "−") if isinstance(row.a, int | float) and row.a else ""
    return f"{'+' if row.change > 0 else '−'}{size}{relative}"
