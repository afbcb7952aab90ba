from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.record.directory import RunDirectory
from orchestrator.record.writer import Record
from orchestrator.results.checks.faults import faults_took_effect
from orchestrator.results.history import History
from tests.orchestrator.example_run import Example, plan_of
from tests.orchestrator.results.checks.test_registry import CUT, FAULT, Run

NAME = "faults took effect"
CRASH = FAULT | {"action": "crash", "node": "edge-0"}


def test_a_fault_that_could_not_be_made_fails(tmp_path: Path) -> None:
    pause = FAULT | {"action": "pause", "node": "edge-0", "at": 2.0}
    run = Run(tmp_path, faults=[pause]).rounds()
    run.record.state(1.0, "edge-0", "running")
    run.record.fault(3.0, 1, "pause", "edge-0", "skipped", 1, "the driver docker cannot pause edge-0")
    verdict, detail = run.ended().verdict(NAME)
    assert verdict == "fail"
    assert "the driver docker cannot pause edge-0" in detail


def test_a_planned_join_is_moot_if_the_node_was_made_to_join_manually(tmp_path: Path) -> None:
    join = FAULT | {"action": "join", "node": "edge-0", "at": 2.0}
    run = Run(tmp_path, faults=[join]).rounds()
    run.record.event(1.0, None, "injected", 1, {"fault": 2, "user": "ada", "planned": {**join, "id": 2, "at": 1.0}})
    run.record.fault(1.0, 2, "join", "edge-0", "start", 1)
    run.record.state(1.0, "edge-0", "running")
    run.record.fault(3.0, 1, "join", "edge-0", "skipped", 1, "edge-0 has joined already and is running")
    verdict, detail = run.ended().verdict(NAME)
    assert verdict == "pass"
    assert "1 was made manually" in detail


def test_a_fault_of_a_node_that_is_away_already_is_moot(tmp_path: Path) -> None:
    pause = FAULT | {"action": "pause", "node": "edge-0", "at": 2.0}
    run = Run(tmp_path, faults=[pause]).rounds()
    run.record.state(1.0, "edge-0", "running")
    run.record.state(3.0, "edge-0", "crashed", "fault")
    run.record.fault(3.0, 1, "pause", "edge-0", "skipped", 1, "edge-0 is not running but crashed")
    verdict, detail = run.ended().verdict(NAME)
    assert verdict == "pass"
    assert "1 met a node" in detail


@pytest.mark.parametrize(("t", "verdict"), [(21.9, "fail"), (22.0, "pass")])
def test_a_fault_that_was_skipped_after_the_end_is_moot(tmp_path: Path, t: float, verdict: str) -> None:
    """The run ended at 22 s. The node ran all the time."""
    run = Run(tmp_path, faults=[CRASH | {"at": 20.9}]).rounds()
    run.record.state(1.0, "edge-0", "running")
    run.record.fault(t, 1, "crash", "edge-0", "skipped", 1, "it ends")
    assert run.ended().verdict(NAME)[0] == verdict


def test_a_planned_join_is_not_moot_by_itself(tmp_path: Path) -> None:
    run = Run(tmp_path, faults=[FAULT | {"action": "join", "node": "edge-0", "at": 2.0}]).rounds()
    run.record.state(1.0, "edge-0", "running")
    run.record.fault(3.0, 1, "join", "edge-0", "skipped", 1, "edge-0 has joined already and is running")
    assert run.ended().verdict(NAME)[0] == "fail"


def test_a_cut_is_moot_only_if_both_ends_of_its_links_are_away(tmp_path: Path) -> None:
    """The device crashed at 3 s, when the cut was due, and its edge was running."""
    run = Run(tmp_path, faults=[CUT | {"node": None}]).rounds()
    run.record.state(1.0, "edge-0", "running")
    run.record.state(3.0, "device-0-0", "crashed", "fault")
    run.record.fault(3.0, 1, "disconnect", "device-0-0", "skipped", 1, "it is away")
    assert run.ended().verdict(NAME)[0] == "fail"


@pytest.mark.parametrize(
    ("when", "took_effect", "verdict", "words"),
    [  # the training started at 1 s, round 1 at 1 s, and round 2 at 11 s
        ({"at": 2.0}, 3.0005, "pass", "took effect"),  # by less than 1 ms
        ({"at": 2.0}, 3.0015, "pass", "; the latest was 1.5 ms late"),
        ({"at": 2.0}, 4.0, "pass", "1 of 1 planned fault took effect; the latest was 1 s late"),
        ({"at": 1.0}, 3.5, "unknown", "latest by 1.5 s: crash edge-0"),
        ({"at": 2.0}, 8.0, "unknown", "the latest by 5 s"),
        ({"at": 2.0}, 8.1, "fail", "the latest by 5.1 s"),
        ({"at": 2.0}, 92.0, "fail", "the latest by 89 s"),  # a program's output held the orchestrator up
        ({"round": 1}, 3.5, "unknown", "latest by 2.5 s: crash edge-0"),
        ({"round": 2}, 13.5, "unknown", "latest by 2.5 s: crash edge-0"),
        ({"round": 2}, 92.5, "fail", "the latest by 81.5 s"),
    ],
)
def test_faults_come_in_time(
    tmp_path: Path, when: dict[str, Any], took_effect: float, verdict: str, words: str
) -> None:
    run = Run(tmp_path, faults=[CRASH | when]).rounds(last=12)
    run.record.fault(took_effect, 1, "crash", "edge-0", "start", 1)
    found = run.ended().verdict(NAME)
    assert found[0] == verdict
    assert words in found[1]
    assert ("late" in found[1]) == (took_effect != 3.0005)


def test_faults_that_are_a_second_late_are_in_time(tmp_path: Path) -> None:
    """At 2 s and 3 s of a training from 1 s on: they came 1 s and 2 s late."""
    run = Run(tmp_path, faults=[CRASH | {"at": 2.0}, CRASH | {"id": 2, "at": 3.0}]).rounds()
    run.record.fault(4.0, 1, "crash", "edge-0", "start", 1)
    run.record.fault(6.0, 2, "crash", "edge-0", "start", 1)
    assert "; 1 fault took effect more" in run.verdict(NAME)[1]


def test_a_round_starts_when_the_first_of_its_leaders_starts_it(tmp_path: Path) -> None:
    """Of two leading edges, one starts round 1 at 2 s and the other at 5 s."""
    nodes = plan_of(Example(edges=2, devices_per_edge=1, with_faults=False))["nodes"]
    nodes = [node | {"leads": node["tier"] == "edge"} for node in nodes]
    run = Run(tmp_path, nodes=nodes, faults=[CRASH | {"round": 1}])
    for t, node in ((2.0, "edge-0"), (5.0, "edge-1")):
        run.record.event(t, node, "round", 1, {"phase": "start"})
    run.record.fault(5.5, 1, "crash", "edge-0", "start", 1)
    assert "latest by 3.5 s: crash edge-0" in run.verdict(NAME)[1]


def test_faults_of_a_continued_run_wait_until_it_trains_again(tmp_path: Path) -> None:
    """It stopped at 4 s of training and trained again 10 s later, so what was planned at 6 s was due at 17 s."""
    run = Run(tmp_path, faults=[CRASH | {"at": 6.0}]).rounds()
    run.record.event(5.0, None, "continued", 1, {})
    run.record.event(15.0, None, "training", None, {})
    run.record.fault(17.5, 1, "crash", "edge-0", "start", 1)
    assert run.ended().verdict(NAME) == ("pass", "1 of 1 planned fault took effect; the latest was 500 ms late")


def test_what_took_effect_before_a_run_was_continued_was_late_all_the_same(tmp_path: Path) -> None:
    """What was planned at 4 s of a training from 1 s on came at 7 s, when the run was continued."""
    run = Run(tmp_path, faults=[CRASH | {"at": 4.0}]).rounds()
    run.record.fault(7.0, 1, "crash", "edge-0", "start", 1)
    run.record.event(7.0, None, "continued", 1, {})
    run.record.event(9.0, None, "training", None, {})
    assert "the latest by 2 s" in run.ended().verdict(NAME)[1]


def test_a_fault_that_met_no_node_because_it_came_late(tmp_path: Path) -> None:
    run = Run(tmp_path, faults=[FAULT | {"action": "pause", "node": "edge-0", "at": 2.0}]).rounds()
    run.record.state(2.5, "edge-0", "done")
    run.record.fault(13.0, 1, "pause", "edge-0", "skipped", 1, "edge-0 is not running but done")
    assert run.ended().verdict(NAME)[0] == "fail"


@pytest.mark.parametrize(
    ("when", "expected"),
    [  # the training lasted from 1 s to 20 s, and had 2 rounds; a fault may be a second late
        ({"at": 17.9}, "fail"),
        ({"at": 18.0}, "pass"),
        ({"round": 2}, "fail"),
        ({"round": 3}, "pass"),
    ],
)
def test_a_fault_that_was_never_made_fails_if_the_training_came_to_it(
    tmp_path: Path, when: dict[str, Any], expected: str
) -> None:
    verdict, detail = Run(tmp_path, faults=[CRASH | when]).rounds().ended().verdict(NAME)
    assert verdict == expected
    assert ("ended before 1" in detail) == (expected == "pass")


def test_a_run_that_continues_may_still_make_its_faults_and_is_not_read_for_leaks(tmp_path: Path) -> None:
    run = Run(tmp_path, faults=[CRASH | {"at": 2.0}, CUT | {"id": 2}]).rounds()
    run.crossed("device-0-0", "edge-0", LEAKING)
    run.record.fault(3.0, 2, "disconnect", "device-0-0", "start", 1)
    run.record.flush()
    with RunDirectory(tmp_path).held():
        assert run.verdict(NAME) == ("pass", "1 of 2 planned faults took effect; 1 to come")


def test_faults_of_a_run_that_never_trained_were_never_due(tmp_path: Path) -> None:
    plan = plan_of(Example()) | {"faults": [CRASH | {"at": 0.0}]}
    record = Record.create(tmp_path, json.dumps(plan), {})
    record.outcome(9.0, {"ended": "failed"})
    record.close()
    assert faults_took_effect(History.open(tmp_path))[0] == "pass"


LEAKING = {2.0: 10, 4.0: 20, 5.0: 27, 7.0: 30}  # 7 packets in a cut from 3 s to 6 s


def cut(directory: Path, *others: dict[str, Any], delivered: dict[float, int] = LEAKING, **settings: Any) -> Run:
    """A fault from 3 s to 6 s, which cuts a link unless ``settings`` say otherwise. ``others``: more faults."""
    fault = CUT | settings
    run = Run(directory, faults=[fault, *others]).rounds().crossed("device-0-0", "edge-0", delivered)
    for t, phase in ((3.0, "start"), (6.0, "end")):
        run.record.fault(t, 1, fault["action"], "device-0-0", phase, 1)
    return run


@pytest.mark.parametrize(
    ("delivered", "leaked"),
    [
        ({2.0: 10, 4.0: 20, 5.0: 20, 7.0: 30}, 0),  # 10 before the cut was felt, none in it, 10 after it
        (LEAKING, 7),
        # The first and the last 0.2 s of a cut may count what crossed before and after.
        ({3.1: 10, 3.2: 20, 5.8: 27, 5.9: 30}, 7),
    ],
)
def test_what_is_cut_carries_nothing(tmp_path: Path, delivered: dict[float, int], leaked: int) -> None:
    verdict, detail = cut(tmp_path, delivered=delivered).ended().verdict(NAME)
    assert verdict == ("fail" if leaked else "pass")
    assert (f"device-0-0 → edge-0 ({leaked} packets in device-0-0)" in detail) == bool(leaked)


def test_a_cut_that_never_ends_lasts_until_the_end_of_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, faults=[CUT]).rounds().crossed("device-0-0", "edge-0", {4.0: 20, 21.0: 27})
    run.record.fault(3.0, 1, "disconnect", "device-0-0", "start", 1)
    assert "(7 packets in device-0-0)" in run.ended().verdict(NAME)[1]


@pytest.mark.parametrize("continued", [2.5, 4.5, 6.5])
def test_a_run_that_is_continued_has_new_links(tmp_path: Path, continued: float) -> None:
    """7 packets crossed between 4 s and 5 s, 3 between 5 s and 5.5 s."""
    run = cut(tmp_path, delivered={4.0: 20, 5.0: 27, 5.5: 30})
    run.record.event(continued, None, "continued", 1, {})
    leaked = 3 if continued == 4.5 else 10
    assert f"({leaked} packets in device-0-0)" in run.ended().verdict(NAME)[1]


MOVE = FAULT | {"id": 2, "action": "handover", "node": "device-0-0", "at": 3.0}
MOVE["crossings"] = [["device-0-0", "edge-0", "cell-1"]]


@pytest.mark.parametrize(
    ("medium", "moves", "verdict"),
    [
        ({"medium": "cell-0"}, True, "pass"),  # the link may have crossed another medium
        ({"medium": "cell-0"}, False, "fail"),
        ({}, True, "fail"),
    ],
)
def test_a_link_that_moved_may_cross_another_medium_than_the_one_that_was_cut(
    tmp_path: Path, medium: dict[str, Any], moves: bool, verdict: str
) -> None:
    run = cut(tmp_path, *[MOVE] * moves, **medium)
    if moves:
        run.record.fault(4.0, 2, "handover", "device-0-0", "start", 1)
    assert run.ended().verdict(NAME)[0] == verdict


def test_a_fault_that_cuts_nothing_lets_packets_through(tmp_path: Path) -> None:
    assert cut(tmp_path, action="degrade").ended().verdict(NAME)[0] == "pass"


def test_a_manual_cut_that_was_not_possible_cut_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path).rounds().crossed("device-0-0", "edge-0", LEAKING)
    run.record.event(3.0, None, "injected", 1, {"fault": 1, "user": "ada", "planned": CUT})
    run.record.fault(3.0, 1, "disconnect", "device-0-0", "skipped", 1, "it is away")
    assert run.ended().verdict(NAME) == ("pass", "none was planned; 1 was made manually")
