from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.record.events.run import Gap
from tests.orchestrator.example_run import Example, plan_of
from tests.orchestrator.results.checks.test_registry import FAULT, Run
from tests.texts import containing

NAME = "no unplanned failures"
PAUSE: dict[str, Any] = FAULT | {"action": "pause", "node": "device-0-0", "at": 2.0}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """It trained from 1 s to 20 s."""
    return Run(tmp_path, faults=[PAUSE]).rounds()


def test_a_quiet_run_passes(run: Run) -> None:
    run.record.state(5.0, "device-0-0", "crashed", "fault")
    assert run.verdict(NAME) == ("pass", containing("no node ended and nothing stalled"))


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
        containing("at 5.4 s", "8.0 s (silent), device-0-0", "1 node", "device-0-0; 1 node", "edge-0 at 5.5 s"),
    )


@pytest.mark.parametrize(
    ("t", "explained"),
    [(5.9, False), (6.0, True), (9.0, True), (9.1, False)],  # a node may end a second before its host is lost
)
def test_which_ends_the_loss_of_a_host_explains(tmp_path: Path, t: float, explained: bool) -> None:
    nodes = plan_of(Example(edges=1, devices_per_edge=2, with_faults=False))["nodes"]
    nodes = [node | {"host": "a" if node["tier"] == "cloud" else "b"} for node in nodes]
    run = Run(tmp_path, nodes=nodes).rounds()
    run.record.state(t, "edge-0", "crashed", "signal 9")
    for time, state in ((7.0, "lost"), (9.0, "back")):
        run.record.event(time, None, "host", 1, {"host": "b", "state": state, "reason": ""})
    assert ("1 node ended with the host" in run.verdict(NAME)[1]) == explained


@pytest.mark.parametrize("who", ["node", "orchestrator"])
@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [(0.5, "fail"), (0.4, "pass")],  # both are more than 2 % of 19 s; standstills below 0.5 s are not reported
)
def test_the_shortest_standstill(run: Run, who: str, seconds: float, verdict: str) -> None:
    stall(run, 9.0, seconds, who)
    assert run.verdict(NAME)[0] == verdict


def stall(run: Run, t: float, seconds: float, who: str = "node") -> None:
    if who == "node":
        run.record.event(t, "device-0-1", "frozen", None, {"seconds": seconds})
    else:
        gap = {"since": t - seconds, "seconds": seconds, "stood_still": seconds}
        run.record.event(t, None, Gap.NAME, 1, gap)


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [(4.0, "fail"), (3.98, "unknown"), (2.0, "unknown"), (1.99, "pass")],  # 2 % of 199 s are 3.98 s, 1 % are 1.99 s
)
def test_a_short_standstill_in_a_long_run(tmp_path: Path, seconds: float, verdict: str) -> None:
    run = Run(tmp_path).rounds(last=20)  # until 200 s
    stall(run, 9.0, seconds)
    found, detail = run.verdict(NAME)
    assert found == verdict
    assert f"device-0-1 for {seconds:g} s until 8.0 s" in detail


def test_the_longest_total_of_any_process_counts(tmp_path: Path) -> None:
    """1 s of one node and 2 · 1.1 s of another: 2.2 s of 199 s are more than 1 %."""
    run = Run(tmp_path).rounds(last=20)
    run.record.event(9.0, "device-0-0", "frozen", None, {"seconds": 1.0})
    stall(run, 11.0, 1.1)
    stall(run, 31.0, 1.1)
    assert run.verdict(NAME)[0] == "unknown"


@pytest.mark.parametrize("who", ["node", "orchestrator"])
def test_what_stalled_before_the_training_did_not_change_it(run: Run, who: str) -> None:
    """It stalled until 1 s, when the training started."""
    stall(run, 1.0, 0.8, who)
    assert run.verdict(NAME) == ("pass", containing("no node ended and nothing stalled"))


@pytest.mark.parametrize("who", ["node", "orchestrator"])
@pytest.mark.parametrize(
    ("seconds", "ended", "verdict"),
    [(1.5, "rounds", "pass"), (1.6, "rounds", "fail"), (1.5, "interrupted", "fail")],
)
def test_what_stalled_after_the_last_round_did_not_change_it(
    run: Run, who: str, seconds: float, ended: str, verdict: str
) -> None:
    """The last round ended at 20 s. The standstill until 21.5 s counts if it started before, or if the run was ended
    within a round."""
    stall(run, 21.5, seconds, who)
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


def test_a_report_may_follow_the_standstill_by_a_second(run: Run) -> None:
    """A node that reports at 8 s that it stalled for 2.5 s did so from 4.5 s on at the earliest: the pause until 6 s
    explains 1.5 s at most."""
    for t, phase in ((3.0, "start"), (6.0, "end")):
        run.record.fault(t, 1, "pause", "device-0-0", phase, 1)
    run.record.event(8.0, "device-0-0", "frozen", None, {"seconds": 2.5})
    assert "device-0-0 for 1 s until 7.0 s" in run.verdict(NAME)[1]


@pytest.mark.parametrize("action", ["crash", "pause"])
def test_only_a_pause_at_that_time_explains_a_standstill(tmp_path: Path, action: str) -> None:
    """One from 13 s to 16 s explains nothing at 9 s; nor does a crash from 3 s to 16 s."""
    run = Run(tmp_path, faults=[PAUSE | {"action": action, "node": "device-0-1"}]).rounds()
    run.record.fault(13.0 if action == "pause" else 3.0, 1, action, "device-0-1", "start", 1)
    run.record.fault(16.0, 1, action, "device-0-1", "end", 1)
    stall(run, 9.0, 0.6)
    assert "device-0-1 for 600 ms until 8.0 s" in run.verdict(NAME)[1]


def test_an_orchestrator_that_was_stopped(run: Run) -> None:
    run.record.event(15.0, None, Gap.NAME, 1, {"since": 4.0, "seconds": 10.0, "stood_still": 9.9})
    verdict, detail = run.verdict(NAME)
    assert verdict == "fail"
    assert detail == containing("orchestrator for 9.9 s", "14.0 s")


@pytest.mark.parametrize(
    ("last_round", "seconds", "stood_still", "verdict"),
    [
        (2, 2.0, 0.0, "unknown"),
        (2, 1.9, 0.0, "pass"),
        (2, 2.3, 0.4, "pass"),  # too short a standstill to be reported, and 1.9 s without monitoring
        (40, 3.99, 0.0, "unknown"),  # 1 % of the training until 400 s
        (40, 3.9, 0.0, "pass"),
    ],
)
def test_an_orchestrator_that_a_busy_host_kept_from_monitoring(
    tmp_path: Path, last_round: int, seconds: float, stood_still: float, verdict: str
) -> None:
    run = Run(tmp_path).rounds(last=last_round)
    run.record.event(15.0, None, Gap.NAME, 1, {"since": 11.0, "seconds": seconds, "stood_still": stood_still})
    assert run.verdict(NAME)[0] == verdict


def test_the_longest_time_without_monitoring_is_shown(run: Run) -> None:
    for t, seconds in ((6.0, 2.0), (12.0, 3.0), (18.0, 2.5)):
        run.record.event(t, None, Gap.NAME, 1, {"since": t - seconds, "seconds": seconds, "stood_still": 0.0})
    assert run.verdict(NAME)[1].endswith("3 s until 11.0 s")


def test_a_manual_fault_among_planned_ones_is_named(run: Run) -> None:
    planned = PAUSE | {"id": 2, "action": "crash", "at": 3.0}
    run.record.event(4.0, None, "injected", 1, {"fault": 2, "user": "ada", "planned": planned})
    run.record.fault(4.0, 2, "crash", "device-0-0", "start", 1)
    assert run.verdict(NAME)[1].endswith("as planned or made manually")
