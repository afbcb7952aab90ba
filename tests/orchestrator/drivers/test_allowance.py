from __future__ import annotations

from orchestrator.drivers.allowance import LINE, REPORT_EVERY, Allowance
from orchestrator.record.events.nodes import LINES_A_SECOND, LINES_AT_ONCE


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.t = 0.0

    def __call__(self) -> float:
        return self.t


def taken(allowance: Allowance, lines: int, line: str = "a line") -> int:
    return sum(allowance.take(line) for _ in range(lines))


def test_a_burst_and_then_a_rate() -> None:
    clock = Clock()
    allowance = Allowance(clock)
    assert taken(allowance, 20_000) == LINES_AT_ONCE
    assert allowance.is_spent
    clock.t = 2.0
    assert not allowance.is_spent
    assert taken(allowance, 20_000) == 2 * LINES_A_SECOND
    clock.t = 1000.0  # more than a burst is never left
    assert taken(allowance, 20_000) == LINES_AT_ONCE


def test_a_long_line_counts_as_several() -> None:
    """Each takes 4 of the 10,000."""
    assert taken(Allowance(Clock()), 20_000, "x" * 4 * LINE) == LINES_AT_ONCE / 4


def test_dropped_lines_are_reported_once_and_not_too_often() -> None:
    clock = Clock()
    allowance = Allowance(clock)
    clock.t = REPORT_EVERY
    assert allowance.due() == 0
    allowance.drop(3)
    assert allowance.due() == 3
    allowance.drop(2)
    assert allowance.due() == 0
    assert allowance.due(last=True) == 2
    assert allowance.due(last=True) == 0
