"""The view of one run among many: a line in a terminal, removed when the run is over. Without a terminal, no output."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.live import Live
from rich.text import Text

from orchestrator import text
from orchestrator.run.showing import Clock, Snapshot


class Glimpse:
    """A view of a run: its round and accuracy beside ``name``."""

    def __init__(self, name: str, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        self._name = name
        # No refresh thread (auto_refresh): a simulation forks its workers from this process.
        # What a program prints meanwhile goes above the line, or to the file that its output is written to.
        self._live = Live(
            Text(name),
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=False,
        )
        self._shown = console.is_terminal
        if self._shown:
            self._live.start(refresh=True)

    def keep_time(self, clock: Clock) -> None:
        """Do nothing: the line shows no times."""

    def update(self, snapshot: Snapshot) -> None:
        if not self._shown:
            return
        rounds = f"round {snapshot.round} of {snapshot.rounds_total}"
        accuracy = "" if snapshot.accuracy is None else f", accuracy {text.percent(snapshot.accuracy)} so far"
        left = "" if snapshot.left_here is None else f", about {text.duration(snapshot.left_here)} left"
        self._live.update(Text(f"{self._name}: {rounds}{accuracy}{left}"), refresh=True)

    def line(self, text: str) -> None:
        """Do nothing: the run's record and report have the events."""

    def close(self) -> None:
        if self._shown:
            self._live.stop()
