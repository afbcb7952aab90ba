"""The effects of the thirteen faults as a table, in a terminal and in Markdown, and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from orchestrator.errors import RunError
from orchestrator.layout import write_table
from orchestrator.limits.faults import FAULTS, IDLE, UNIMPAIRED
from orchestrator.limits.suite import SuiteRun
from orchestrator.record.directory import write_whole

JSON_FILE = "faults.json"
MARKDOWN_FILE = "faults.md"

FOR_GOOD = ("gone", "killed")
"""The faults after which the client does not come back."""
RunFacts = Mapping[str, Any]
"""A run as in the JSON: the fields of `Task` and `Effects`, "seed", "run" and "verdict"."""
Table = tuple[list[str], list[list[str]]]
"""Headings, and rows."""
Cell = Callable[[Sequence[RunFacts]], str]
"""The text of a cell, from the runs of a fault."""


def to_json(name: str, scenario: str, runs: Iterable[SuiteRun]) -> dict[str, Any]:
    """The object that `limits --faults --json` prints, and faults.json holds."""
    written = []
    for run in runs:
        own = {"seed": run.seed, "run": run.run.name, "verdict": run.verdict}
        written.append(asdict(run.task) | own | asdict(run.effects))
    return {"name": name, "scenario": scenario, "runs": written}


def rows(runs: Sequence[RunFacts]) -> Table:
    """The headings and the rows of the table of one case: one row for each fault. Columns that no run has are left
    out."""
    by_fault: dict[str, list[RunFacts]] = {}
    for run in runs:
        by_fault.setdefault(run["fault"], []).append(run)
    names = [fault.name for fault in FAULTS if fault.name in by_fault]
    headings = ["fault"]
    columns = [names]
    for heading, cell in _COLUMNS.items():
        column = [cell(by_fault[name]) for name in names]
        if any(column):
            headings.append(heading)
            columns.append(column)
    table = [list(row) for row in zip(*columns, strict=True)]
    return headings, table


def by_case(facts: Mapping[str, Any]) -> dict[str, list[RunFacts]]:
    """The runs of each case."""
    cases: dict[str, list[RunFacts]] = {}
    for run in facts["runs"]:
        cases.setdefault(run["case"], []).append(run)
    return cases


def in_short(runs: Sequence[RunFacts]) -> str:
    """What the runs of a fault came to, in a few words: of a federation its round and its work, else its messages."""
    if not all(run["began"] for run in runs):
        return "the fault did not start"
    if runs[0]["fault"] == IDLE:
        return f"{_bytes(runs)} a minute"
    if any(run["has_rounds"] for run in runs):
        words = _federation_in_short(runs)
    elif any(run["up"] is not None for run in runs):
        words = _messages_in_short(runs)
    else:
        words = []
    noticed = _notices("server")(runs)
    if runs[0]["fault"] in FOR_GOOD and noticed:
        words.append(f"noticed {noticed}")
    exits = _exits(runs)
    if exits:
        words.append(f"ended: {exits}")
    return ", ".join(words)


def _federation_in_short(runs: Sequence[RunFacts]) -> list[str]:
    fault = runs[0]["fault"]
    finished = _finished(runs)
    if fault == UNIMPAIRED:
        return [f"finished {finished}"]
    words = [f"round {_closed(runs)}"]
    counted = _words_of("counted")(runs)
    if counted:
        words.append(counted)
    if fault not in FOR_GOOD:
        words.append(f"again {_trains_again(runs)}")
    if "**" in finished:
        words.append(f"finished: {finished}")
    return words


def _messages_in_short(runs: Sequence[RunFacts]) -> list[str]:
    fault = runs[0]["fault"]
    if fault in FOR_GOOD:
        return []
    lost = []
    for run in runs:
        if run["up"] is not None:
            lost.append(run["up"]["lost"] + run["down"]["lost"])
    words = [f"{_numbers(lost)} lost"] if any(lost) else []
    if fault == UNIMPAIRED:
        return words or ["none lost"]
    return [*words, f"back {_back_both_ways(runs)}"]


def print_faults(facts: Mapping[str, Any], console: Console) -> None:
    for case, runs in by_case(facts).items():
        headings, table = rows(runs)
        write_table(console, headings, table, title=f"thirteen faults of {facts['scenario']}, {case}")


def markdown(facts: Mapping[str, Any]) -> str:
    """The tables in Markdown, one for each case."""
    parts = []
    for case, runs in by_case(facts).items():
        parts.append(f"{facts['scenario']}, {case}:\n\n{markdown_table(*rows(runs))}")
    return "\n".join(parts)


def markdown_table(headings: Sequence[str], table: Sequence[Sequence[str]]) -> str:
    lines = [_line(headings), _line(["---"] * len(headings))]
    lines += [_line(row) for row in table]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def write_files(facts: Mapping[str, Any], directory: Path) -> None:
    """Write faults.json and faults.md. RunError if there is no room."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(directory / JSON_FILE, json.dumps(facts, indent=2) + "\n")
        write_whole(directory / MARKDOWN_FILE, markdown(facts))
    except OSError as error:
        raise RunError(
            f"cannot write the results in {directory} ({error.strerror}): make room, or choose --runs"
        ) from None


def _seconds(values: Sequence[float | None], never: str = "") -> str:
    """The median in s, and the range if there are several values; how many runs have none."""
    known = [value for value in values if value is not None]
    if not known:
        return never
    words = _rounded(median(known))
    if _rounded(min(known)) != _rounded(max(known)):
        words += f" ({_rounded(min(known))} to {_rounded(max(known))})"
    words += " s"
    missing = len(values) - len(known)
    if missing:
        words += f", {missing} of {len(values)} {never or 'never'}"
    return words


def _rounded(seconds: float) -> str:
    """Whole seconds; below ten with one decimal."""
    if abs(seconds) < 9.95:
        return f"{seconds:.1f}"
    return f"{seconds:.0f}"


def _numbers(values: Sequence[int]) -> str:
    words = f"{math.floor(median(values))}"
    if min(values) != max(values):
        words += f" ({min(values)} to {max(values)})"
    return words


def _words_of(key: str) -> Cell:
    def cell(runs: Sequence[RunFacts]) -> str:
        return _words([run[key] for run in runs])

    return cell


def _checks(runs: Sequence[RunFacts]) -> str:
    words = [run["verdict"] for run in runs]
    if not all(run["began"] for run in runs):
        words.append("the fault did not start")
    return _words(words)


def _number(runs: Sequence[RunFacts]) -> str:
    return str(len(runs))


def _words(values: Iterable[str | None]) -> str:
    different = dict.fromkeys(value for value in values if value)
    return ", ".join(different)


def _twice(runs: Sequence[RunFacts]) -> str:
    values = []
    for run in runs:
        for way in ("up", "down"):
            if run[way] is not None:
                values.append(run[way]["twice"])
    return _numbers(values) if any(values) else ""


def _back(way: str) -> Cell:
    def cell(runs: Sequence[RunFacts]) -> str:
        of_runs = [run for run in runs if run[way] is not None]
        if not of_runs or runs[0]["fault"] in FOR_GOOD:
            return ""
        watched = max(run["watched"] for run in of_runs)
        return _seconds([run[way]["back"] for run in of_runs], f"**never** in {watched:.0f} s")

    return cell


def _back_both_ways(runs: Sequence[RunFacts]) -> str:
    """When messages arrive in both directions again."""
    backs: list[float | None] = []
    for run in runs:
        if run["up"] is None:
            continue
        ways = (run["up"]["back"], run["down"]["back"])
        backs.append(None if None in ways else max(ways))
    watched = max(run["watched"] for run in runs)
    return _seconds(backs, f"**never** in {watched:.0f} s")


def _closed(runs: Sequence[RunFacts]) -> str:
    of_runs = [run for run in runs if run["has_rounds"]]
    if not of_runs or all(run["fault"] in (UNIMPAIRED, IDLE) for run in of_runs):
        return ""
    return _seconds([run["closed"] for run in of_runs], "**never**")


def _trains_again(runs: Sequence[RunFacts]) -> str:
    of_runs = [run for run in runs if run["has_rounds"]]
    if not of_runs:
        return ""
    return _seconds([run["trains_again"] for run in of_runs], "never")


def _finished(runs: Sequence[RunFacts]) -> str:
    of_runs = [run for run in runs if run["has_rounds"] and run["fault"] != IDLE]
    if not of_runs:
        return ""
    failures = [run["failed"] for run in of_runs if run["failed"] is not None]
    if failures:
        return f"**failed** after {_seconds(failures)}"
    watched = max(run["watched"] for run in of_runs)
    return _seconds([run["finished"] for run in of_runs], f"**not** in {watched:.0f} s")


def _exits(runs: Sequence[RunFacts]) -> str:
    words = []
    for run in runs:
        for program, how in run["exits"].items():
            words.append(f"{program}: {how}")
    return _words(words)


def _bytes(runs: Sequence[RunFacts]) -> str:
    """Only where nothing happens: a fault changes what is sent again."""
    if runs[0]["fault"] not in (UNIMPAIRED, IDLE):
        return ""
    up = median(run["bytes_up"] for run in runs)
    down = median(run["bytes_down"] for run in runs)
    return f"{up / 1000:.1f} kB up, {down / 1000:.1f} kB down"


def _of_side(way: str, key: str) -> Cell:
    def cell(runs: Sequence[RunFacts]) -> str:
        values = [run[way][key] for run in runs if run[way] is not None]
        return _numbers(values) if values else ""

    return cell


def _notices(side: str) -> Cell:
    def cell(runs: Sequence[RunFacts]) -> str:
        return _seconds([run["noticed"].get(run[side]) for run in runs])

    return cell


_COLUMNS: Mapping[str, Cell] = {
    "server notices": _notices("server"),
    "client notices": _notices("client"),
    "lost up": _of_side("up", "lost"),
    "lost down": _of_side("down", "lost"),
    "twice": _twice,
    "back up": _back("up"),
    "back down": _back("down"),
    "round ends": _closed,
    "counted": _words_of("counted"),
    "trains again": _trains_again,
    "finished": _finished,
    "programs ended": _exits,
    "bytes a minute": _bytes,
    "runs": _number,
    "checks": _checks,
}
