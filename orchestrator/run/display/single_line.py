"""The view of one run among many: a line in a terminal or a notebook, removed when the run is over. Elsewhere, no
output."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from html import escape
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from orchestrator import text
from orchestrator.run.display.snapshot import Snapshot, View


class Glimpse(View):
    """A view of a run: ``name``, with its round and main metric."""

    def __init__(self, name: str, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        self._name = name
        # No refresh thread (auto_refresh): a simulation forks its workers from this process.
        # What a program prints goes above the line, or to the file that its output is written to.
        self._live = Live(
            Text(name),
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=False,
        )
        self._shown = console.is_terminal
        self._cell = None if self._shown else notebook_cell()
        if self._shown:
            self._live.start(refresh=True)

    def update(self, snapshot: Snapshot) -> None:
        if not self._shown and self._cell is None:
            return
        parts = [snapshot.round_of_all, *snapshot.value_so_far]
        if snapshot.left_here is not None:
            left = text.duration(snapshot.left_here)
            parts.append(f"about {left} left")
        line = f"{self._name}: {', '.join(parts)}"
        if self._cell is None:
            self._live.update(Text(line), refresh=True)
            return
        share = 0.0
        if snapshot.rounds_total:
            share = text.share(snapshot.round, snapshot.rounds_total)
        self._cell(f'<progress value="{share:.3f}"></progress> {escape(line)}')

    def close(self) -> None:
        if self._shown:
            self._live.stop()
        if self._cell is not None:
            self._cell("")


def notebook_cell() -> Callable[[str], object] | None:
    """Shows HTML in the present cell of a notebook, in place of the former; None elsewhere. Imports nothing."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    if get_shell is None:
        return None
    shell: Any = get_shell()
    if not hasattr(shell, "kernel"):
        return None
    output = _output(shell.execution_count)
    html = sys.modules["IPython.display"].HTML
    return lambda written: output.update(html(written))


@functools.lru_cache(maxsize=1)
def _output(cell: int) -> Any:
    """The output of a cell in which all runs of this cell show their progress."""
    display: Any = sys.modules["IPython.display"]
    return display.display(display.HTML(""), display_id=True)
