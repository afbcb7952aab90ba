"""The events of a run for a program that receives them during the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from orchestrator.record.rows import Event

Row = tuple[Any, ...]


class Listener:
    """Calls a function with every event of a run, in the order of the record, until the function raises. ``error`` is
    then what it raised, and ``end`` is called with a sentence about it."""

    def __init__(self, call: Callable[[Event], object]) -> None:
        self.error: BaseException | None = None
        self.end: Callable[[str], object] = lambda error: None
        self._call = call

    def receive(self, table: str, row: Row) -> None:
        """Receive a new row of the record. Does not raise."""
        event = event_of(table, row)
        if event is None or self.error is not None:
            return
        try:
            self._call(event)
        except BaseException as error:  # also SystemExit, so that the run still ends in order
            self.error = error
            self.end(f"on_event raised {type(error).__name__}: {error}")


def event_of(table: str, row: Row) -> Event | None:
    """A row of the record as an event. None for the rows of counters, probes, traffic, resources and sensors. An event
    is as the record holds it. A metric has its own name, and ``scope`` and ``value`` as data. The new state of a node
    is an event "state". The start, the end and the omission of a fault are events "fault"."""
    data: dict[str, Any]
    match table, row:
        case "event", (t, node, name, round, edge_round, text):
            data = json.loads(text)
            return Event(t, node, name, round, data, edge_round)
        case "metric", (t, node, round, scope, name, value):
            data = {"scope": scope, "value": value}
            return Event(t, node, name, round, data)
        case "state", (t, node, state, detail):
            data = {"state": state, "detail": detail}
            return Event(t, node, "state", None, data)
        case "fault", (t, _, action, target, phase, round, detail):
            data = {
                "action": action,
                "target": target,
                "phase": phase,
                "detail": detail,
            }
            return Event(t, None, "fault", round, data)
    return None
