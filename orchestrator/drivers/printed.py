"""What programs print for the record: lines such as ``::edgebed {"round": 3, "accuracy": 0.81}``. Pure.

Each line has one JSON object, and becomes the messages that a node of ours would send (`node.messaging.control`). They
are checked as those are (`orchestrator.run.nodes.messages`). JSON has one kind of number: 1 and 1.0 are the same.

- ``{"round": 3, "phase": "start"}``: round 3 starts. Faults of that round strike now.
- ``{"round": 3, "accuracy": 0.81, "loss": 0.6}``: the figures of round 3, which is over. If the program never
  prints the start of a round, round 4 starts now.
- ``{"accuracy": 0.7, "scope": "own"}``: figures without a round. The scope is ``global`` unless it is given.
- ``{"event": "leader elected", "leader": "a"}``: an event for the record, with its other fields.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from node.messaging.wire import LAST_ROUND
from orchestrator.record.events.nodes import RESERVED, RoundReached

MARK = "::edgebed "
LONGEST_LINE = 65536  # bytes; of a longer line the last ones are read, from the mark on if it has one


Message = dict[str, Any]
Entry = dict[str, Any]  # the JSON object of a line


class Lines:
    """The lines of an output that is read in pieces. A carriage return, as of progress bars, also ends one."""

    def __init__(self) -> None:
        self._pending = b""

    def add(self, data: bytes, *wanted: str) -> list[str]:
        """The lines that are complete with this piece; with ``wanted`` those that contain one of these texts."""
        words = [text.encode() for text in wanted]
        whole = self._whole(data)
        if words and not any(word in whole for word in words):  # most pieces of a long output
            return []
        lines = []
        for line in whole.splitlines():
            if not words or any(word in line for word in words):
                lines.append(line.decode(errors="replace"))
        return lines

    def pass_over(self, data: bytes) -> int:
        """Take a piece without reading its lines. Returns how many marks the lines have that it completes."""
        whole = self._whole(data)
        return whole.count(MARK.encode())

    def _whole(self, data: bytes) -> bytes:
        """The lines that are complete with this piece, as one text."""
        text = self._pending + data
        last_end = max(text.rfind(b"\n"), text.rfind(b"\r"))
        start = last_end + 1  # of the line that is not complete
        self._pending = _shortened(text[start:])
        return text[:start]

    def end(self) -> list[str]:
        """The last line, if the output ended without a newline."""
        last = self._pending
        self._pending = b""
        if last:
            return [last.decode(errors="replace")]
        return []


def _shortened(line: bytes) -> bytes:
    if len(line) <= LONGEST_LINE:
        return line
    start = line.find(MARK.encode())
    if start < 0:
        return line[-LONGEST_LINE:]
    end = start + LONGEST_LINE
    return line[start:end]


class Printed:
    """Understands the lines of a node's programs. ``rounds``: the last round, if the scenario sets it."""

    def __init__(self, rounds: int | None = None) -> None:
        self._rounds = rounds
        self._prints_starts = False
        self._started = 0  # the last round that has started
        self._ended = 0

    def messages(self, line: str) -> Iterator[Message]:
        """The messages of a line; none if it is not for the record. If a line cannot be read, one has the reason."""
        _, mark, written = line.partition(MARK)
        if not mark:
            return
        try:
            entry = json.loads(written)
        except (ValueError, RecursionError) as error:
            reason = f"{_excerpt(written)} is no JSON: {_json_problem(error)}"
            if len(line.encode()) >= LONGEST_LINE:
                reason += f" (only {LONGEST_LINE} bytes of a line are read)"
            yield _unreadable(reason)
            return
        if not isinstance(entry, dict):
            yield _unreadable(f"{_excerpt(written)} is no JSON object")
            return
        event = entry.pop("event", None)
        round = _whole(entry.pop("round", None))
        phase = entry.pop("phase", None)
        if event is not None and not _finite(entry):
            yield _unreadable("an event has NaN or an infinity, and JSON has no such number: leave it out")
        elif event in RESERVED:
            yield _unreadable(f"the event '{event}' is the orchestrator's own: name it differently")
        elif event is not None:
            entry.pop("type", None)
            entry.pop("name", None)
            yield {
                "type": "event",
                "name": event,
                "round": round,
                **entry,
            }
        elif phase not in (None, "start", "end"):
            yield _unreadable(f"the phase is {str(phase)[:40]!r}: write start or end")
        elif phase == "start":
            self._prints_starts = True
            yield from self.begin(round)
        else:
            yield from self._figures(round, entry)

    def begin(self, round: Any = 1) -> Iterator[Message]:
        """The message that a round starts; none if it or a later one has started before."""
        if _is_round(round):
            if round <= self._started:
                return
            self._started = round
        yield {
            "type": "event",
            "name": RoundReached.NAME,
            "round": round,
            "phase": "start",
        }

    def _figures(self, round: Any, entry: Entry) -> Iterator[Message]:
        name = _first_not_finite(entry)
        if name is not None:
            yield _unreadable(f"{name} is {entry[name]}, and JSON has no such number: leave it out")
        elif entry:
            values = {"scope": "global"} | entry
            yield {"type": "metric", "round": round, "values": values}
        if round is None:
            return
        yield from self.begin(round)
        if _is_round(round):
            if round <= self._ended:
                return  # a program that has started again may count from 1 again
            self._ended = round
        yield {
            "type": "event",
            "name": RoundReached.NAME,
            "round": round,
            "phase": "end",
        }
        if self._prints_starts or not _is_round(round):
            return
        if round != self._rounds:
            yield from self.begin(round + 1)


def _excerpt(written: str) -> str:
    start = written.strip()[:80]
    return f"{start!r}"


def _json_problem(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"see its character {error.pos + 1}"
    if isinstance(error, RecursionError):
        return "its lists are nested too deeply"
    return "a number has too many digits"


def _first_not_finite(entry: dict[str, Any]) -> str | None:
    """The first name with NaN or an infinity; None if there is none."""
    for name, value in entry.items():
        if type(value) is float and not math.isfinite(value):
            return name
    return None


def _finite(entry: dict[str, Any]) -> bool:
    try:
        json.dumps(entry, allow_nan=False)
    except ValueError:
        return False
    except RecursionError:  # it was just read, and the check of messages refuses so many levels
        pass
    return True


def _whole(value: Any) -> Any:
    """A whole number as an int. Some languages print 3 as 3.0."""
    if type(value) is float and value.is_integer():
        return int(value)
    return value


def _is_round(value: Any) -> bool:
    """Whether the check of messages will take it. If a larger number counted, smaller ones would be over already."""
    return type(value) is int and value <= LAST_ROUND


def _unreadable(reason: str) -> dict[str, Any]:
    return {"type": "unreadable", "reason": f"a line that begins with {MARK.strip()}: {reason}"}
