"""An edge that cannot reach the cloud for a while: the rounds go on, and what it sends too late is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.results.history import History
from tests.e2e.harness import FEW, up

pytestmark = pytest.mark.e2e

ROUNDS = 24  # the last of them seconds after the cut
CUT = """\
faults:
  - {at: 1s, between: [edge-0, cloud], action: partition, for: 3s}
gathering: {quorum: 50%, deadline: 500ms, cloud_deadline: 700ms}
probe: {before: false}
"""


@pytest.mark.parametrize("lost_after", ["2s", "20s"])
def test_rounds_continue_without_it_and_it_comes_back(tmp_path: Path, lost_after: str) -> None:
    """Whether the cloud takes the edge for lost meanwhile (2 s) or only misses its answers (20 s)."""
    scenario = (
        FEW.replace("rounds: 3", f"rounds: {ROUNDS}") + CUT + f"timeouts: {{beat: 200ms, lost_after: {lost_after}}}\n"
    )
    result = up(tmp_path, scenario, "--set", "hardware.device=raspberry-pi-4")
    assert result.summary["ended"] == "rounds", result.errors
    assert result.summary["rounds"] == ROUNDS
    with History.open(Path(result.summary["run"])) as history:
        (cut,) = history.faults()
        assert cut.start is not None
        assert cut.end is not None
        cloud = [(each.start, each.end) for each in history.rounds() if each.node == "cloud" and each.end is not None]
        during = [start for start, end in cloud if start > cut.start + 0.5 and end < cut.end]
        assert during
        events = [event.name for event in history.events("lost", "late") if event.node == "cloud"]
        assert ("lost" in events) == (lost_after == "2s")
        if lost_after == "20s":
            assert "late" in events
        answers = [metric.round for metric in history.metrics("accuracy", "own") if metric.node == "edge-0"]
        assert max(round for round in answers if round is not None) == ROUNDS
