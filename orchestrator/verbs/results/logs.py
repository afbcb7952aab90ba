"""The record of one node as lines of a log, for simulated nodes, which print nothing themselves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence

from orchestrator import text
from orchestrator.errors import RunError
from orchestrator.host.tail import follow_file
from orchestrator.record.rows import Event, Metric, State
from orchestrator.results.history import History

Row = State | Event | Metric

LOOK_EVERY = 0.25  # s
NAMED = 12  # nodes named in an error


def follow_record(
    history: History,
    node: str,
    go_on: Callable[[], bool],
) -> Iterator[str]:
    """Yield the lines of a node, see `follow_lines`. If the node failed, the traceback from its log file comes last.
    Other parts with a log, such as `up` in the background, have only that."""
    log = history.directory / "logs" / f"{node}.log"
    if node not in history.nodes and log.exists():
        yield from follow_file(log, go_on)
        return
    yield from follow_lines(history, node, go_on)
    if log.exists():
        yield from follow_file(log, lambda: False)


def follow_lines(
    history: History,
    node: str,
    go_on: Callable[[], bool],
) -> Iterator[str]:
    """Yield what the record has of a node in lines, then added lines, until ``go_on`` returns False and all is read.
    Times are on the run's clock. RunError if the run has no such node."""
    if node not in history.nodes:
        names = text.some(history.nodes, NAMED)
        raise RunError(f"run {history.run} has no node '{node}'; it has: {names}")
    read = [0, 0, 0]  # rows of each table
    while True:
        last = not go_on()
        tables: list[Sequence[Row]] = [
            history.states(node),
            history.events(node=node),
            history.metrics(None, node=node),
        ]
        new_rows: list[Row] = []
        for number, rows in enumerate(tables):
            already_read = read[number]
            new_rows.extend(rows[already_read:])
            read[number] = len(rows)
        new_rows.sort(key=lambda row: row.t)
        for row in new_rows:
            yield f"[{row.t:10.3f} s] {_in_words(row)}\n"
        if last:
            break
        time.sleep(LOOK_EVERY)


def _in_words(row: Row) -> str:
    match row:
        case State():
            return f"state {row.state}{_in_brackets(row.detail)}"
        case Metric():
            return f"{_round(row.round)}{row.scope} {row.name} {row.value:.6g}"
        case Event():
            data = [f"{key} {_value(value)}" for key, value in row.data.items()]
            return f"{_round(row.round)}{row.name}{_in_brackets(', '.join(data))}"


def _in_brackets(words: str) -> str:
    if not words:
        return ""
    return f" ({words})"


def _round(round: int | None) -> str:
    if round is None:
        return ""
    return f"round {round}: "


def _value(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
