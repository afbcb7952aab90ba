"""The faults of a run: what became of each, and the rules by which another run has them all again."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

import yaml
from rich.console import Console

from netem.units import format_duration
from orchestrator.layout import write, write_table
from orchestrator.record.events.run import Injected
from orchestrator.record.rows import FaultSpan
from orchestrator.results.history import History

# the order of the keys in a rule; the others follow
FIRST = (
    "at",
    "round",
    "every_round",
    "random",
    "event",
    "node",
    "nodes",
    "of",
    "fraction",
    "count",
    "between",
    "action",
    "for",
)
WIDE = 10_000  # columns, so that each rule is one line


def fault_rows(history: History) -> list[dict[str, Any]]:
    """For each fault: id, action, target, by (a user), the plan, start, end, skipped (s of training), round, detail."""
    began = history.training_began or 0.0
    return [_row(span, began) for span in history.faults()]


def print_faults(history: History, console: Console) -> None:
    rows = fault_rows(history)
    if not rows:
        write(console, f"{history.run}: no faults were planned, and none were made manually")
        return
    cells = [_cells(row) for row in rows]
    headings = (
        "number",
        "action",
        "target",
        "made",
        "at",
        "until",
        "round",
        "detail",
    )
    figures = {0, 4, 5, 6}
    write_table(console, headings, cells, title=history.run, right=figures)


def as_rules(history: History, *, by_round: bool = False) -> str:
    """The faults of a run as YAML: `faults` for its scenario. The rules of the scenario come first, then each fault
    that was made manually, at its time of training, or at the start of its round. If nodes joined manually, the rules
    of joins name the other nodes only: a node joins once."""
    manual = []
    joined = set()
    for recorded in history.recorded(Injected):
        if recorded.node is None:
            manual.append(recorded)
            planned = recorded.event.planned
            if planned["action"] == "join":
                joined.add(planned["node"])
    rules = list(history.effective.get("faults", ()))
    if joined:
        rules = [rule for rule in rules if rule["action"] != "join"]
        rules.extend(_joins(history, joined))
    lines = [f"  - {_line(rule)}" for rule in rules]
    for recorded in manual:
        injected = recorded.event
        rule = dict(injected.written or {})
        if by_round and recorded.round is not None:
            rule.pop("at", None)
            rule = {"round": recorded.round, **rule}
        comment = f"manual: {injected.user}, round {recorded.round or 0}"
        lines.append(f"  - {_line(rule)}  # {comment}")
    if not lines:
        return "faults: []\n"
    return "\n".join(["faults:", *lines]) + "\n"


def _joins(history: History, joined: Container[str]) -> Iterator[dict[str, Any]]:
    """A rule for each planned join of a node that is not among those that ``joined`` manually."""
    for fault in history.plan["faults"]:
        if fault["action"] != "join" or fault["node"] in joined:
            continue
        if fault["at"] is None:
            when = {"round": fault["round"]}
        else:
            when = {"at": format_duration(fault["at"])}
        yield {**when, "node": fault["node"], "action": "join"}


def _line(rule: Mapping[str, Any]) -> str:
    ordered = {}
    for key in sorted(rule, key=_place):
        ordered[key] = rule[key]
    line = yaml.safe_dump(
        ordered,
        default_flow_style=True,
        sort_keys=False,
        allow_unicode=True,
        width=WIDE,
    )
    return line.strip()


def _place(key: str) -> int:
    if key in FIRST:
        return FIRST.index(key)
    return len(FIRST)


def _row(span: FaultSpan, began: float) -> dict[str, Any]:
    return {
        "id": span.id,
        "action": span.action,
        "target": span.target,
        "by": span.by,
        "start": _since(began, span.start),
        "end": _since(began, span.end),
        "skipped": _since(began, span.skipped),
        "round": span.round,
        "detail": span.detail,
        "planned": span.planned,
    }


def _since(began: float, t: float | None) -> float | None:
    if t is None:
        return None
    return round(t - began, 3)


def _cells(row: Mapping[str, Any]) -> list[str]:
    origin = f"manual ({row['by']})" if row["by"] else "planned"
    round = "" if row["round"] is None else str(row["round"])
    return [
        str(row["id"]),
        row["action"],
        row["target"],
        origin,
        _start(row),
        _seconds(row["end"]),
        round,
        row["detail"],
    ]


def _start(row: Mapping[str, Any]) -> str:
    if row["start"] is not None:
        return _seconds(row["start"])
    if row["skipped"] is not None:
        return "skipped"
    return "not reached"


def _seconds(t: float | None) -> str:
    if t is None:
        return ""
    return f"{t:.2f} s"
