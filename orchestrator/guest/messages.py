"""The messages that a guest sends to the host's side: lines of JSON in a file of the run's folder."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator.run.display.snapshot import Clock, Snapshot, View

Row = tuple[Any, ...]


class Messages:
    """Writes messages to a file of the host. They are collected until the event loop has nothing else to do. The file
    is closed each time: only then has the host what was written (hostfs, in the kernel's source)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unwritten: list[str] = []

    def send(self, kind: str, *content: Any) -> None:
        line = json.dumps([kind, *content], ensure_ascii=False)
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self.flush)
        self._unwritten.append(line + "\n")

    def row(self, table: str, row: Row) -> None:
        """Send a row of the record."""
        self.send("row", table, row)

    def flush(self) -> None:
        text = "".join(self._unwritten)
        self._unwritten = []
        if not text:
            return
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, text.encode("utf-8", "replace"))
        finally:
            os.close(file)


class RemoteView(View):
    """Shows a run on the host's side."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._clock: Callable[[], float] = lambda: 0.0

    def keep_time(self, clock: Clock) -> None:
        self._clock = clock

    def update(self, snapshot: Snapshot) -> None:
        fields = asdict(snapshot)
        traffic = []
        for group, rate in snapshot.traffic.items():
            traffic.append([*group, rate])
        fields["traffic"] = traffic
        self._messages.send("snapshot", fields)

    def line(self, text: str) -> None:
        self._messages.send("line", self._clock(), text)
