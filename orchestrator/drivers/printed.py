"""What programs print for the record: lines such as ``::edgebed {"round": 3, "accuracy": 0.81}``. Pure.

Each line has one JSON object, and becomes the messages that a node of ours would send (`node.messaging.control`). They
are checked as those are (`orchestrator.run.nodes.messages`). JSON has one kind of number: 1 and 1.0 are the same.

- ``{"round": 3, "phase": "start"}``: round 3 begins. Faults of that round strike now.
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

MARK = "::edgebed "
ENDED = "program ended"  # an event: a program has ended before the run was asked to end: {program, code}
KILLED = "killed at the end"  # the event of a node with programs that did not end within their grace after SIGTERM
DROPPED = "lines dropped"  # an event of a node whose programs print more than its allowance: {lines}
RESERVED = (ENDED, KILLED, DROPPED)  # events that no program can print, since checks trust them
LONGEST_LINE = 65536  # bytes; of a longer line the last ones are read, from the mark on if it has one


class Lines:
    """The lines of an output that is read in pieces. A carriage return, as of progress bars, also ends one."""

    def __init__(self) -> None:
        self._pending = b""

    def add(self, data: bytes, *wanted: str) -> list[str]:
        """The lines that are complete with this piece; with ``wanted`` those that contain one of these texts."""
        words = [each.encode() for each in wanted]
        whole = self._whole(data)
        if words and not any(word in whole for word in words):  # most pieces of a long output
            return []
        lines = whole.splitlines()
        return [line.decode(errors="replace") for line in lines if not words or any(word in line for word in words)]

    def pass_over(self, data: bytes) -> int:
        """Take a piece without reading its lines. Returns how many marks the lines have that it completes."""
        return self._whole(data).count(MARK.encode())

    def _whole(self, data: bytes) -> bytes:
        """The lines that are complete with this piece, as one text."""
        text = self._pending + data
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        self._pending = _shortened(text[end:])
        return text[:end]

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
    return line[start : start + LONGEST_LINE]


class Printed:
    """Understands the lines of a node's programs. ``rounds``: the last round, if the scenario tells it."""

    def __init__(self, rounds: int | None = None) -> None:
        self._rounds = rounds
        self._tells_starts = False
        self._begun = 0
        self._ended = 0

    def messages(self, line: str) -> Iterator[dict[str, Any]]:
        """The messages of a line; none if it is not for the record. One says why a line cannot be read."""
        _, mark, written = line.partition(MARK)
        if not mark:
            return
        try:
            entry = json.loads(written)
        except (ValueError, RecursionError) as error:
            if len(line.encode()) >= LONGEST_LINE:
                long = f" (only {LONGEST_LINE} bytes of a line are read)"
            else:
                long = ""
            yield _unreadable(f"{written.strip()[:80]!r} is no JSON: {_json_problem(error)}{long}")
            return
        if not isinstance(entry, dict):
            yield _unreadable(f"{written.strip()[:80]!r} is no JSON object")
            return
        event = entry.pop("event", None)
        round = _whole(entry.pop("round", None))
        phase = entry.pop("phase", None)
        if event is not None and not _finite(entry):
            yield _unreadable("an event has NaN or an infinity, and JSON has no such number: leave it out")
        elif event in RESERVED:
            yield _unreadable(f"the event '{event}' is the orchestrator's own: name it differently")
        elif event is not None:
            fields = {key: value for key, value in entry.items() if key not in ("type", "name")}
            yield {
                "type": "event",
                "name": event,
                "round": round,
                **fields,
            }
        elif phase not in (None, "start", "end"):
            yield _unreadable(f"the phase is {str(phase)[:40]!r}: write start or end")
        elif phase == "start":
            self._tells_starts = True
            yield from self.begin(round)
        else:
            yield from self._figures(round, entry)

    def begin(self, round: Any = 1) -> Iterator[dict[str, Any]]:
        """The message that a round begins; none if it or a later one has begun before."""
        if _is_round(round):
            if round <= self._begun:
                return
            self._begun = round
        yield {
            "type": "event",
            "name": "round",
            "round": round,
            "phase": "start",
        }

    def _figures(self, round: Any, entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
        unusual = [name for name, value in entry.items() if type(value) is float and not math.isfinite(value)]
        if unusual:
            yield _unreadable(f"{unusual[0]} is {entry[unusual[0]]}, and JSON has no such number: leave it out")
        elif entry:
            yield {"type": "metric", "round": round, "values": {"scope": "global"} | entry}
        if round is None:
            return
        yield from self.begin(round)
        if _is_round(round):
            if round <= self._ended:
                return  # a program that has started again may count from 1 again
            self._ended = round
        yield {
            "type": "event",
            "name": "round",
            "round": round,
            "phase": "end",
        }
        if not self._tells_starts and _is_round(round) and round != self._rounds:
            yield from self.begin(round + 1)


def _json_problem(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"see its character {error.pos + 1}"
    return "its lists are nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"


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
