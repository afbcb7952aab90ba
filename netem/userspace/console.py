"""Requests and replies in JSON lines over two pipes, without blocking."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

from netem.errors import NetemError

PENDING_LIMIT = 64 * 1024 * 1024


class Console:
    """Requests from one descriptor, replies and events to another; neither reading nor writing ever blocks.

    `open` becomes False at the end of the input, when the reader of the output has closed, and when more than
    PENDING_LIMIT bytes of output are pending.
    """

    def __init__(self, reading: int, writing: int) -> None:
        self.reading = reading
        self.writing = writing
        self.open = True
        self._received = bytearray()
        self._pending = bytearray()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)

    def requests(self) -> list[object]:
        """The requests that have arrived completely; None for a line that is not JSON."""
        try:
            data = os.read(self.reading, 1 << 20)
        except BlockingIOError:
            return []
        self.open = bool(data)
        self._received += data
        lines = self._received.split(b"\n")
        self._received = lines.pop()  # the start of a line
        return [self._parse(line) for line in lines if line.strip()]

    def write(self, message: Mapping[str, Any]) -> None:
        self._pending += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> bool:
        """Write as much as the reader accepts; False while output is pending."""
        try:
            while self._pending:
                written = os.write(self.writing, self._pending)
                del self._pending[:written]
        except BlockingIOError:
            if len(self._pending) >= PENDING_LIMIT:
                self.open = False
        except BrokenPipeError:
            self.open = False
        return not self._pending

    @staticmethod
    def _parse(line: bytes | bytearray) -> object:
        try:
            return json.loads(line)
        except ValueError:
            return None


Reply = dict[str, Any]
Operation = Callable[..., Reply]


def answer(
    request: object,
    operations: Mapping[str, Operation],
    texts: Collection[str] = (),
) -> Reply:
    """The reply of one of the ``operations`` to a request, or the error. ``texts``: arguments that must be texts."""
    if not isinstance(request, Mapping):
        return {"error": "a request is a JSON object"}
    arguments = dict(request)
    identity = {}
    if "id" in arguments:
        identity["id"] = arguments.pop("id")
    for key in texts:
        value = arguments.get(key, "")
        if not isinstance(value, str):
            return {**identity, "error": f"{key} must be a text, not {value!r}"}
    name = arguments.pop("op", None)
    operation = None
    if isinstance(name, str):
        operation = operations.get(name)
    if operation is None:
        known = ", ".join(operations)
        return {**identity, "error": f"unknown op {name!r}; known are {known}"}
    try:
        result = operation(**arguments)
    except (NetemError, KeyError, TypeError, ValueError) as error:
        return {**identity, "error": f"{name}: {error}"}
    return {**identity, "ok": True, **result}
