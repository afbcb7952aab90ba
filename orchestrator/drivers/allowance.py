"""How many lines for the record a node's programs may print. Of more the record has only the number: a program that
prints without pause would otherwise delay the end of the run, and fill the record and the report."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.record.events.nodes import LINES_A_SECOND, LINES_AT_ONCE

LINE = 100  # characters; a longer line counts as several
REPORT_EVERY = 1.0  # s between two reports of dropped lines
FLOOD = 50.0  # lines, below which what is left is not worth reading a long output for


class Allowance:
    """The allowance of one node. ``clock``: in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = LINES_AT_ONCE
        now = clock()
        self._filled = now
        self._reported = now
        self._dropped = 0  # not reported yet

    @property
    def is_spent(self) -> bool:
        self._fill()
        return self._left < FLOOD

    def take(self, line: str) -> bool:
        """Whether a line is read. If not, it is counted as dropped."""
        self._fill()
        if self._left < 1:
            self._dropped += 1
            return False
        self._left -= max(1.0, len(line) / LINE)
        return True

    def drop(self, lines: int) -> None:
        self._dropped += lines

    def due(self, *, last: bool = False) -> int:
        """How many dropped lines are to be reported now; 0 if none. ``last``: do not wait for more of them."""
        now = self._clock()
        dropped = self._dropped
        if not dropped:
            return 0
        waits = now - self._reported < REPORT_EVERY
        if waits and not last:
            return 0
        self._reported = now
        self._dropped = 0
        return dropped

    def _fill(self) -> None:
        now = self._clock()
        elapsed = now - self._filled
        self._left = min(LINES_AT_ONCE, self._left + LINES_A_SECOND * elapsed)
        self._filled = now
