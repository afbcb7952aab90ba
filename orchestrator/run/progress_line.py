"""What a person sees of one run among many: a line that is gone when the run is over, and none outside a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.live import Live
from rich.text import Text

from orchestrator import text
from orchestrator.run.view import Clock, Snapshot


class Glimpse:
    """A view of a run: its round and accuracy beside ``name``."""

    def __init__(self, name: str, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        self._name = name
        # It draws itself only when it is told to: a thread beside it would be forked into the workers of a simulation.
        self._live = Live(Text(name), console=console, auto_refresh=False, transient=True, redirect_stderr=False)
        self._shown = console.is_terminal
        if self._shown:
            self._live.start(refresh=True)

    def keep_time(self, clock: Clock) -> None:
        """It tells no times."""

    def update(self, snapshot: Snapshot) -> None:
        if not self._shown:
            return
        rounds = f"round {snapshot.round} of {snapshot.rounds_total}"
        accuracy = "" if snapshot.accuracy is None else f", accuracy {text.percent(snapshot.accuracy)} so far"
        self._live.update(Text(f"{self._name}: {rounds}{accuracy}"), refresh=True)

    def line(self, text: str) -> None:
        """What happens is in the run's record and report."""

    def close(self) -> None:
        if self._shown:
            self._live.stop()
