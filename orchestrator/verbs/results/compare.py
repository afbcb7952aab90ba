"""The comparison of two runs: the settings that differ, and the results of both. `compare_many` has more than two."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from orchestrator import text
from orchestrator.layout import Cell, write, write_entries, write_table
from orchestrator.results.checks.verdicts import STYLES
from orchestrator.results.evaluation.targets import accuracy_series, first_at
from orchestrator.results.record.history import History
from orchestrator.results.summary import finite, summary

TARGETS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99)
"""Target accuracies. The time to each target that a run reached is compared."""


@dataclass(frozen=True)
class SettingDifference:
    """One setting that differs, of the effective scenario or of the nodes' TCP. None for a run without it."""

    setting: str
    a: Any
    b: Any


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
class Comparison:
    """Runs ``a`` and ``b``. ``same_scenario``: every setting is equal, the seed included."""

    a: str
    b: str
    same_scenario: bool
    differences: tuple[SettingDifference, ...]
    rows: tuple[ComparedFigure, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values. Each row also has its change."""
        return {**asdict(self), "rows": [{**asdict(row), "change": row.change} for row in self.rows]}


@dataclass(frozen=True)
class Side:
    """The data of one run for a comparison. ``accuracy`` is by round, ``reached`` has seconds of training by target."""

    run: str
    status: str
    effective: dict[str, Any]
    tcp: dict[str, str]
    summary: dict[str, Any]
    accuracy: dict[int, float]
    reached: dict[float, float]


def side(history: History) -> Side:
    """Read the data of a run, finished or not."""
    began, series = history.training_began or 0.0, accuracy_series(history, "global")
    reached = {target: first_at(series, target) for target in TARGETS}
    return Side(
        history.run,
        history.status,
        history.effective,
        history.tcp,
        summary(history),
        {row.round: row.value for row in history.global_series("accuracy") if row.round is not None},
        {target: first.t - began for target, first in reached.items() if first is not None},
    )


def compare(a: Side, b: Side) -> Comparison:
    """Compare two runs, which may have different scenarios."""
    same = a.effective == b.effective
    differences = [
        SettingDifference(path, *values)
        for path, values in (*differing([a.effective, b.effective]), *differing_tcp([a.tcp, b.tcp]))
    ]
    one, other = a.summary, b.summary
    rows = [
        ComparedFigure("verdict", "text", one["verdict"], other["verdict"]),
        ComparedFigure("ended", "text", one["ended"] or a.status, other["ended"] or b.status),
        ComparedFigure("rounds", "count", one["rounds"], other["rounds"]),
        ComparedFigure("time", "s", one["seconds"], other["seconds"]),
        ComparedFigure("accuracy at the end", "fraction", one["accuracy"]["global"], other["accuracy"]["global"]),
        *_accuracy_at_rounds(a, b),
        *_time_to_accuracy(a, b),
        *_by_key("delivered", "bytes", one["bytes"], other["bytes"]),
        *_by_key("messages", "count", one["messages"], other["messages"]),
        ComparedFigure("faults made", "count", _made(one), _made(other)),
        ComparedFigure("overruns", "count", one["overruns"], other["overruns"]),
        *_by_key("check", "text", _verdicts(one), _verdicts(other)),
    ]
    return Comparison(a.run, b.run, same, tuple(differences), tuple(rows))


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Write the names of the runs, then a table of the settings that differ and a table of the results."""
    write_entries(console, [("a", comparison.a), ("b", comparison.b)])
    write(console, "")
    if comparison.same_scenario:
        write(console, Text.assemble(("same scenario", "bold"), ", every setting equal"))
    if comparison.differences:
        settings = [(each.setting, shown_setting(each.a), shown_setting(each.b)) for each in comparison.differences]
        write_table(console, ("setting", "a", "b"), settings, title="settings that differ")
    write(console, "")
    results = [(row.name, _value(row.a, row.unit), _value(row.b, row.unit), _change(row)) for row in comparison.rows]
    write_table(console, ("", "a", "b", "b − a"), results, title="results", right={1, 2, 3})


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
