"""A link engine that does not keep up: the run says when, and why, and is not trusted. In virtual time none is late."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from orchestrator.record.events.overload import LATE_PACKETS, Overload, merged
from orchestrator.results.history import History
from tests.e2e.harness import SMALL, Background

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

STOPPED = 1.0  # s


def test_a_switch_that_is_stopped_for_a_moment_is_reported_with_its_time(tmp_path: Path) -> None:
    scenario = SMALL.replace("rounds: 3", "rounds: 12") + "probe: {before: false}\n"
    with Background(tmp_path, scenario) as run:
        run.wait_round(3)
        switch = run.pid_of_part("switch")
        os.kill(switch, signal.SIGSTOP)
        time.sleep(STOPPED)  # nothing is waited for: this is how long it is stopped
        os.kill(switch, signal.SIGCONT)
        result = run.result()
    assert result.code == 3, result.errors
    assert result.summary["rounds"] == 12
    (check,) = [each for each in result.summary["checks"] if each["name"] == "links on time"]
    assert check["verdict"] == "fail", check
    assert "more than 50 ms late" in check["detail"]
    with History.open(Path(result.summary["run"])) as history:
        stretches = merged(recorded.event for recorded in history.recorded(Overload))
        third = next(each for each in history.rounds() if (each.node, each.round) == ("cloud", 3))
    worst = max(stretches, key=lambda each: each.held_up)
    assert LATE_PACKETS in worst.effects
    assert 0.9 * STOPPED < worst.late_max < STOPPED + 1.0
    assert third.start < worst.end < third.start + STOPPED + 5.0
    # The packets themselves crossed in the end: nothing was lost that was not to be.
    (looked,) = [each for each in result.summary["checks"] if each["name"] == "losses during the run"]
    assert looked["verdict"] == "pass", looked
    assert "overload" in (Path(result.summary["run"]) / "report.html").read_text()
