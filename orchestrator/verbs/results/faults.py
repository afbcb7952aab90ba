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

FIRST = ("at", "round", "every_round", "random", "node", "nodes", "of", "fraction", "count", "between", "action", "for")
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
    cells = [(str(row["id"]), row["action"], row["target"], _made(row["by"]), *_became(row)) for row in rows]
    headings = ("number", "action", "target", "made", "at", "until", "round", "detail")
    write_table(console, headings, cells, title=history.run, right={0, 4, 5, 6})


def as_rules(history: History, *, by_round: bool = False) -> str:
    """The faults of a run as YAML: `faults` for its scenario. The rules of the scenario come first, then each fault
    that was made manually, at its time of training, or at the start of its round. If nodes joined manually, the rules
    of joins name the other nodes only: a node joins once."""
    made = [recorded for recorded in history.recorded(Injected) if recorded.node is None]
    planned = [recorded.event.planned for recorded in made]
    joined = {fault["node"] for fault in planned if fault["action"] == "join"}
    rules = list(history.effective.get("faults", ()))
    if joined:
        rules = [*(rule for rule in rules if rule["action"] != "join"), *_joins(history, joined)]
    lines = [f"  - {_line(rule)}" for rule in rules]
    for _, _, round, injected in made:
        written = dict(injected.written or {})
        if by_round and round is not None:
            written.pop("at", None)
            written = {"round": round, **written}
        lines.append(f"  - {_line(written)}  # manual: {injected.user}, round {round or 0}")
    return "\n".join(["faults:" if lines else "faults: []", *lines]) + "\n"


def _joins(history: History, joined: Container[str]) -> Iterator[dict[str, Any]]:
    """A rule for each planned join of a node that is not among those that ``joined`` manually."""
    for fault in history.plan["faults"]:
        if fault["action"] == "join" and fault["node"] not in joined:
            if fault["at"] is None:
                when = {"round": fault["round"]}
            else:
                when = {"at": format_duration(fault["at"])}
            yield {**when, "node": fault["node"], "action": "join"}


def _line(rule: Mapping[str, Any]) -> str:
    ordered = {key: rule[key] for key in sorted(rule, key=_place)}
    return yaml.safe_dump(ordered, default_flow_style=True, sort_keys=False, allow_unicode=True, width=WIDE).strip()


def _place(key: str) -> int:
    if key in FIRST:
        return FIRST.index(key)
    return len(FIRST)


def _row(span: FaultSpan, began: float) -> dict[str, Any]:
    times = {name: getattr(span, name) for name in ("start", "end", "skipped")}
    return {
        **{"id": span.id, "action": span.action, "target": span.target, "by": span.by},
        **{name: None if t is None else round(t - began, 3) for name, t in times.items()},
        **{"round": span.round, "detail": span.detail, "planned": span.planned},
    }


def _made(by: str) -> str:
    return f"manual ({by})" if by else "planned"


def _became(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    at, until = (_seconds(row[name]) for name in ("start", "end"))
    if row["start"] is None:
        at = "skipped" if row["skipped"] is not None else "not reached"
    return at, until, "" if row["round"] is None else str(row["round"]), row["detail"]


def _seconds(t: float | None) -> str:
    return "" if t is None else f"{t:.2f} s"
