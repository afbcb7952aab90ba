"""What a row looks like when it is printed."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.record.rows import Event


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Event(0.0, None, "training", None, {}), "    0.00 s  run: training"),
        (Event(1.5, "cloud", "round", 2, {"phase": "start"}), "    1.50 s  cloud: round 2, phase start"),
        (Event(1.5, "edge-0", "round", 2, {}, 3), "    1.50 s  edge-0: round 2, edge round 3"),
        (
            Event(61.25, "cloud", "accuracy", 2, {"scope": "global", "value": 0.83149}),
            "   61.25 s  cloud: accuracy, round 2, scope global, value 0.831",
        ),
        (
            Event(2.0, "device-0", "state", None, {"state": "running", "detail": ""}),
            "    2.00 s  device-0: state running",
        ),
    ],
)
def test_an_event_is_a_line(event: Event, line: str) -> None:
    assert str(event) == line


@pytest.mark.parametrize("value", ["a\n\x1b[2Jb", "x" * 10_000, {"a": ["\n"] * 1000}])
def test_a_line_stays_one_short_line(value: Any) -> None:
    line = str(Event(0.0, "device-0", "note", None, {"reason": value}))
    assert line.isprintable()
    assert len(line) < 150
