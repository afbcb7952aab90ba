from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.record.events.run import Gap
from tests.orchestrator.example_run import Example, plan_of
from tests.orchestrator.results.checks.test_registry import FAULT, Run

NAME = "no unplanned failures"
PAUSE: dict[str, Any] = FAULT | {"action": "pause", "node": "device-0-0", "at": 2.0}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """It trained from 1 s to 20 s."""
    return Run(tmp_path, faults=[PAUSE]).rounds()


def test_a_quiet_run_passes(run: Run) -> None:
    run.record.state(5.0, "device-0-0", "crashed", "fault")
    assert run.verdict(NAME) == ("pass", "no node ended and nothing stalled except as planned")


def test_nothing_is_said_without_training(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.record._connection.execute("DELETE FROM event")
    with pytest.raises(StopIteration):
        run.verdict(NAME)


def test_a_node_that_ended_fails_the_run_though_it_came_back(run: Run) -> None:
    run.record.state(6.5, "edge-0", "crashed", "signal 9")
    run.record.state(6.5, "edge-0", "restarting", "restart 1")
    run.record.state(7.5, "edge-0", "running")
    assert run.verdict(NAME) == ("fail", "1 node ended unplanned: edge-0 at 5.5 s (signal 9)")


def test_a_lost_host_fails_the_run_and_explains_the_ends_of_its_nodes(tmp_path: Path) -> None:
    nodes = plan_of(Example(edges=1, devices_per_edge=2, with_faults=False))["nodes"]
    nodes = [node | {"host": "b" if node["tier"] == "device" else "a"} for node in nodes]
    run = Run(tmp_path, nodes=nodes).rounds()
    for node in ("device-0-0", "edge-0"):
        run.record.state(6.5, node, "crashed", "signal 9: Traceback")
    run.record.event(6.4, None, "host", 1, {"host": "b", "state": "lost", "reason": "silent"})
    run.record.event(7.0, None, "moved", 1, {"node": "device-0-0", "from": "b", "to": "a", "reason": "silent"})
    run.record.event(9.0, None, "host", 1, {"host": "b", "state": "back", "reason": ""})
    assert run.verdict(NAME) == (
        "fail",
        "host b was lost at 5.4 s until 8.0 s (silent), device-0-0 moved to a; 1 node ended with the host: "
        "device-0-0; 1 node ended unplanned: edge-0 at 5.5 s (signal 9: Traceback)",
    )


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [(5.0, "fail"), (0.6, "fail"), (0.3, "pass")],  # 2 % of 19 s are 0.38 s; shorter ones than 0.5 s are not told
)
def test_a_node_that_was_stalled(run: Run, seconds: float, verdict: str) -> None:
    run.record.event(9.0, "device-0-1", "frozen", None, {"seconds": seconds})
    assert run.verdict(NAME)[0] == verdict


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [(3.0, "unknown"), (1.0, "pass")],  # 2 % of 199 s are 3.98 s, 1 % are 1.99 s
)
def test_a_short_standstill_in_a_long_run(tmp_path: Path, seconds: float, verdict: str) -> None:
    run = Run(tmp_path).rounds(last=20)  # until 200 s
    run.record.event(9.0, "device-0-1", "frozen", None, {"seconds": seconds})
    found, detail = run.verdict(NAME)
    assert found == verdict
    assert f"device-0-1 for {seconds:.0f} s until 8.0 s" in detail


def test_what_stalled_before_the_training_did_not_change_it(run: Run) -> None:
    run.record.event(0.9, "device-0-1", "frozen", None, {"seconds": 0.8})
    run.record.event(0.9, None, Gap.NAME, 1, {"since": 0.0, "seconds": 0.9, "stood_still": 0.8})
    assert run.verdict(NAME) == ("pass", "no node ended and nothing stalled except as planned")


@pytest.mark.parametrize(("ended", "verdict"), [("rounds", "pass"), ("interrupted", "fail")])
def test_what_stalled_after_the_last_round_did_not_change_it(run: Run, ended: str, verdict: str) -> None:
    """Unless the run was ended within a round."""
    run.record.event(21.5, "device-0-1", "frozen", None, {"seconds": 1.4})
    run.record.event(21.5, None, Gap.NAME, 1, {"since": 20.1, "seconds": 1.4, "stood_still": 1.4})
    run.ended(ended)
    assert run.verdict(NAME)[0] == verdict


def test_a_planned_pause_is_no_disturbance(run: Run) -> None:
    for t, phase in ((3.0, "start"), (6.0, "end")):
        run.record.fault(t, 1, "pause", "device-0-0", phase, 1)
    run.record.event(6.2, "device-0-0", "frozen", None, {"seconds": 3.0})
    assert run.verdict(NAME)[0] == "pass"


def test_a_standstill_beyond_the_planned_pause_is_reported(run: Run) -> None:
    for t, phase in ((3.0, "start"), (6.0, "end")):
        run.record.fault(t, 1, "pause", "device-0-0", phase, 1)
    run.record.event(11.0, "device-0-0", "frozen", None, {"seconds": 8.0})  # since 3 s, of which 3 s were planned
    verdict, detail = run.verdict(NAME)
    assert verdict == "fail"
    assert "device-0-0 for 5 s until 10.0 s" in detail


def test_an_orchestrator_that_was_stopped(run: Run) -> None:
    run.record.event(15.0, None, Gap.NAME, 1, {"since": 4.0, "seconds": 10.0, "stood_still": 9.9})
    verdict, detail = run.verdict(NAME)
    assert verdict == "fail"
    assert detail == "stalled: the orchestrator for 9.9 s until 14.0 s"


@pytest.mark.parametrize(("seconds", "verdict"), [(3.0, "unknown"), (1.0, "pass")])
def test_an_orchestrator_that_a_busy_host_kept_from_looking(run: Run, seconds: float, verdict: str) -> None:
    run.record.event(15.0, None, Gap.NAME, 1, {"since": 11.0, "seconds": seconds, "stood_still": 0.0})
    assert run.verdict(NAME)[0] == verdict
