from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.verbs.calibrate import print_measured
from tests.orchestrator.consoles import printed

ROW: dict[str, Any] = {
    "link_class": "device-edge",
    "source": "device-with-a-long-name-0-1",
    "target": "edge-0",
    "quantity": "rtt",
    "asked": 0.004,
    "expected": 0.0042,
    "measured": 0.0043,
    "low": 0.0036,
    "high": 0.0055,
    "verdict": "pass",
    "detail": "median of 100 round trips",
    "kind": "emulated",
}
REPORT = Path("/home/somebody/experiments/with/links/runs/mine-20261122-154058-1ef8/report.html")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_nothing_is_cut(width: int) -> None:
    rows = [ROW, {**ROW, "target": "[edge-1]", "verdict": "fail"}]
    shown = printed(width, lambda console: print_measured(rows, "fail", REPORT, console))
    said = " ".join(shown.split())
    assert "device-edge: device-with-a-long-name-0-1 → [edge-1]" in said
    assert "3.6 ms … 5.5 ms" in said or "3.6 ms …" in said
    assert said.endswith(f"verdict fail report {REPORT}")


def test_what_is_only_measured_has_no_range() -> None:
    figures = {"asked": None, "expected": None, "measured": 9e8, "low": None, "high": None}
    real = {**ROW, "quantity": "rate", **figures, "verdict": "measured", "detail": "one stream", "kind": "real"}
    lines = printed(100, lambda console: print_measured([real], "pass", REPORT, console)).splitlines()
    assert lines[0] == "device-edge: device-with-a-long-name-0-1 → edge-0 (real)"
    assert lines[3].split() == ["rate", "–", "–", "900", "mbit", "–", "measured", "one", "stream"]


def test_a_table_for_each_direction() -> None:
    lines = printed(100, lambda console: print_measured([ROW], "pass", REPORT, console)).splitlines()
    assert lines[1].split() == ["quantity", "configured", "expected", "measured", "accepted", "how"]
    assert [cell.strip() for cell in lines[3].split("  ") if cell] == [
        *("rtt", "4 ms", "4.2 ms", "4.3 ms", "3.6 ms … 5.5 ms", "pass", "median of 100 round trips")
    ]
