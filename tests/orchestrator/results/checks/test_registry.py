from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from orchestrator.record.directory import RunDirectory
from orchestrator.record.events.overload import BUSY_MEANWHILE, FULL_BACKLOG, Overload
from orchestrator.record.rows import ProbeResult
from orchestrator.record.schema import COUNTERS
from orchestrator.record.writer import Record
from orchestrator.results.checks import registry
from orchestrator.results.checks.links import links_as_configured
from orchestrator.results.checks.nodes import compute_on_time
from orchestrator.results.checks.registry import Check, checks, overall
from orchestrator.results.checks.verdicts import Verdict
from orchestrator.results.history import History
from orchestrator.scenario.sections.expectations import CheckName
from tests.orchestrator.example_run import Example, plan_of

FAULT: dict[str, Any] = {
    "id": 1,
    "node": None,
    "between": None,
    "at": None,
    "round": None,
    "duration": None,
    "links": [],
}
CUT = FAULT | {"action": "disconnect", "node": "device-0-0", "at": 2.0}
CUT["links"] = [["device-0-0", "edge-0"], ["edge-0", "device-0-0"]]


class Run:
    """A run of a cloud, an edge and two devices that trained from 1 s to 20 s; the rest is up to the test."""

    def __init__(self, directory: Path, *, links: bool = True, meta: dict[str, Any] | None = None, **plan: Any) -> None:
        planned = plan_of(Example(edges=1, devices_per_edge=2, rounds=2, with_faults=False)) | plan
        planned["links"] = planned["links"] if links else []
        self.directory = directory
        self.nodes = [node["name"] for node in planned["nodes"]]
        self.record = Record.create(directory, json.dumps(planned), {"engine": "userspace", **(meta or {})})
        self.record.event(1.0, None, "training", None, {})

    def rounds(self, last: int = 2) -> Run:
        for round in range(1, last + 1):
            self.record.event(10.0 * round - 9, "cloud", "round", round, {"phase": "start"})
            self.record.event(10.0 * round, "cloud", "round", round, {"phase": "end"})
        return self

    def states(self, **states: str) -> Run:
        for name in self.nodes:
            self.record.state(21.0, name, states.get(name.replace("-", "_"), "done"))
        return self

    def ended(self, ended: str = "rounds", error: str | None = None) -> Run:
        self.record.outcome(22.0, {"ended": ended, "error": error})
        return self

    def crossed(self, source: str, target: str, delivered: dict[float, int]) -> Run:
        row = dict.fromkeys(COUNTERS, 0) | {"source": source, "target": target, "link_class": "device-edge"}
        for t, count in delivered.items():
            self.record.counters(t, [row | {"delivered": count, "offered": count}])
        return self

    def verdict(self, name: str) -> tuple[str, str]:
        self.record.close()
        found = next(check for check in checks(History.open(self.directory)) if check["name"] == name)
        return found["verdict"], found["detail"]


def test_the_example_passes_every_check(tmp_path: Path) -> None:
    found = checks(History.open(Example().build(tmp_path)))
    # It records no messages of roles, its clients come by no trace, it sets no TCP, and nothing was refused.
    not_its = ("result as expected", "network between hosts", "participation", "clients available", "messages accepted")
    assert [check["name"] for check in found] == [
        name for name in registry.CHECKS if name not in (*not_its, "TCP as configured")
    ]
    assert {check["verdict"] for check in found} == {"pass"}
    assert overall(found) == "pass"


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["pass", "pass"], "pass"),
        (["pass", "unknown"], "unknown"),
        (["unknown", "fail", "pass"], "fail"),
        (["modelled", "pass"], "pass"),
        (["modelled", "unknown"], "unknown"),
        (["modelled"], "unknown"),
        (["measured", "pass"], "pass"),
        ([], "unknown"),
    ],
)
def test_the_overall_verdict_is_the_worst(verdicts: list[Any], expected: str) -> None:
    assert overall([Check(name="", verdict=verdict, detail="") for verdict in verdicts]) == expected


def test_a_check_that_breaks_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: History) -> tuple[Verdict, str]:
        raise KeyError("nodes")

    monkeypatch.setitem(registry.CHECKS, "finished", broken)
    found = checks(History.open(Example().build(tmp_path)))
    assert found[0]["verdict"] == "unknown"
    assert "KeyError: 'nodes'" in found[0]["detail"]
    assert {check["verdict"] for check in found[1:]} == {"pass"}


@pytest.mark.parametrize(
    ("ended", "rounds", "expected", "words"),
    [
        ("rounds", 2, "pass", "2 of 2 rounds done"),
        ("rounds", 1, "fail", "1 of 2 rounds"),
        ("rounds", 0, "fail", "without finishing a round"),
        ("accuracy", 1, "pass", "target accuracy was reached after 1 of 2"),
        ("after", 1, "pass", "the time given was over"),
        ("interrupted", 1, "fail", "interrupted after 1 of 2 rounds"),
        ("failed", 1, "fail", "the cloud ended"),
    ],
)
def test_finished(tmp_path: Path, ended: str, rounds: int, expected: str, words: str) -> None:
    run = Run(tmp_path).rounds(rounds).ended(ended, "the cloud ended" if ended == "failed" else None)
    verdict, detail = run.verdict("finished")
    assert verdict == expected
    assert words in detail


def test_checks_that_are_expected_to_pass_are_asked(tmp_path: Path) -> None:
    run = Run(tmp_path, meta={"effective": {"expect": {"checks": ["finished", "learned"]}}}).rounds(2).ended()
    assert run.verdict("result as expected") == (
        "fail",
        "check 'learned': unknown, expected pass; the others were met: check 'finished': pass, expected pass",
    )


def test_every_check_may_be_expected_to_pass_but_the_one_that_asks() -> None:
    assert set(get_args(CheckName)) == registry.CHECKS.keys() - {"result as expected", "messages accepted"}


def test_a_run_that_used_its_devices_bytes_has_finished(tmp_path: Path) -> None:
    run = Run(tmp_path, stop={"rounds": 10, "bytes": 500_000_000}).rounds(3).ended("bytes")
    verdict, detail = run.verdict("finished")
    assert verdict == "pass"
    assert detail.startswith("the devices had sent and received 500 MB after 3 of 10 rounds and ")


def test_finished_without_an_outcome(tmp_path: Path) -> None:
    run = Run(tmp_path).rounds(1)
    with RunDirectory(tmp_path).held():
        assert "finished" not in [check["name"] for check in checks(History.open(tmp_path))]  # it goes on
    verdict, detail = run.verdict("finished")
    goes_on = f"`resume {tmp_path.name}` continues from there"
    assert (verdict, detail) == ("fail", f"the orchestrator ended without an outcome after 1 of 2 rounds; {goes_on}")


def test_abandoned_rounds_are_reported(tmp_path: Path) -> None:
    run = Run(tmp_path).rounds(2)
    run.record.event(30.0, "cloud", "round", 3, {"phase": "start"})
    run.record.event(31.0, "cloud", "round_abandoned", 3, {})
    assert "1 abandoned" in run.ended().verdict("finished")[1]


def test_links_that_differ_from_what_was_configured_fail(tmp_path: Path) -> None:
    history = History.open(Example(probe_error=0.3).build(tmp_path))
    verdict, detail = links_as_configured(history)
    assert verdict == "fail"
    assert detail.startswith("16 of 16 probes failed: ")
    assert "configured" in detail
    assert "processors" not in detail


def test_links_that_were_measured_on_a_busy_host_say_so(tmp_path: Path) -> None:
    run = Run(tmp_path)
    detail = f"too much; {BUSY_MEANWHILE}"
    run.record.probe(
        ProbeResult(1.0, "edge-0", "cloud", "edge-cloud", "rtt", 0.04, 0.4, 0.03, 0.05, "fail", detail, "emulated")
    )
    assert run.ended().verdict("links as configured")[1].endswith(f"configured 40 ms; {BUSY_MEANWHILE}")


@pytest.mark.parametrize(
    ("measured", "worst"),
    [
        (0.093, "delay of cloud → edge-0 is 42 ms, configured 40 ms"),
        (0.1, "rtt of edge-0 → cloud is 100 ms, expected 92 ms, configured 80 ms"),
    ],
)
def test_a_failed_probe_is_compared_with_what_is_expected(tmp_path: Path, measured: float, worst: str) -> None:
    """Jitter without reordering delays: 80 ms configured are 92 ms expected, of which 93 ms is the smaller error."""
    run = Run(tmp_path)
    trip = ("edge-0", "cloud", "edge-cloud", "rtt", 0.08, measured, 0.09, 0.0925)
    run.record.probe(ProbeResult(0.5, *trip, "fail", expected=0.092))
    run.record.probe(ProbeResult(0.6, "cloud", "edge-0", "edge-cloud", "delay", 0.04, 0.042, 0.0, 0.041, "fail"))
    assert run.verdict("links as configured")[1].endswith(worst)


def test_links_that_were_not_probed_are_unknown(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.record.probe(ProbeResult(0.5, "edge-0", "cloud", "edge-cloud", "rtt", 0.08, 0.081, 0.07, 0.09, "pass"))
    assert run.verdict("links as configured") == ("unknown", "no probe of device-edge: those links were not measured")


def test_a_probe_that_was_uncertain_is_unknown(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.record.probe(ProbeResult(0.5, "edge-0", "cloud", "edge-cloud", "rtt", 0.08, 0.081, 0.07, 0.09, "pass"))
    run.record.probe(
        ProbeResult(0.6, "device-0-0", "edge-0", "device-edge", "loss", 0.002, None, None, None, "unknown")
    )
    verdict, detail = run.verdict("links as configured")
    assert verdict == "unknown"
    assert "loss of device-0-0 → edge-0" in detail


def test_a_probe_that_lacks_time_says_how_long_it_needs(tmp_path: Path) -> None:
    run = Run(tmp_path)
    link, detail = (
        ("device-0-0", "edge-0", "device-edge"),
        "0 of 145: too few probes to detect it; 613 probes would take 253 s",
    )
    run.record.probe(ProbeResult(0.5, "edge-0", "cloud", "edge-cloud", "rtt", 0.08, 0.081, 0.07, 0.09, "pass"))
    run.record.probe(ProbeResult(0.6, *link, "loss", 0.01, 0.0, 0.0, 0.04, "unknown", detail))
    verdict, said = run.verdict("links as configured")
    assert verdict == "unknown"
    assert said.endswith(f"loss of device-0-0 → edge-0 ({detail}: allow it with `probe: {{longest: …}}`)")


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        (
            "median of 250; this host's processors were 63% busy at that time",
            "configured 14 ms; this host's processors were 63% busy at that time",
        ),
        ("median of 250", "configured 14 ms"),
    ],
)
def test_a_delay_that_fails_by_a_hair_says_how_busy_the_host_was(tmp_path: Path, detail: str, said: str) -> None:
    run = Run(tmp_path)
    row = ("edge-0", "cloud", "edge-cloud", "delay", 0.014, 0.01503, 0.01285, 0.01485, "fail", detail)
    run.record.probe(ProbeResult(0.5, *row))
    assert run.verdict("links as configured")[1].endswith(said)


def test_real_links_are_not_counted_against_anything(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.record.probe(ProbeResult(0.5, "edge-0", "cloud", "edge-cloud", "rtt", 0.08, 0.081, 0.07, 0.09, "pass"))
    row = "rtt", None, 0.3, None, None, "measured", "median of 250"
    run.record.probe(ProbeResult(0.6, "device-0-0", "edge-0", "device-edge", *row, kind="real"))
    assert run.verdict("links as configured") == (
        "pass",
        "1 probe of 1 link class agree with their profiles; 1 figure of real links without configured values",
    )


def test_links_that_are_all_real_are_measured(tmp_path: Path) -> None:
    run = Run(tmp_path)
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["links"] = [link | {"profile": {"real": True}} for link in plan["links"]]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    for ends in (("edge-0", "cloud", "edge-cloud"), ("device-0-0", "edge-0", "device-edge")):
        run.record.probe(ProbeResult(0.5, *ends, "rtt", None, 0.3, None, None, "measured", kind="real"))
    assert run.verdict("links as configured") == (
        "measured",
        "every link is real: 2 figures of 2 link classes, and no values were configured",
    )
    assert run.verdict("losses during the run")[0] == "measured"


@pytest.mark.parametrize("name", ["links as configured", "losses during the run", "links on time"])
def test_links_of_a_run_without_links_pass(tmp_path: Path, name: str) -> None:
    assert Run(tmp_path, links=False).verdict(name) == ("pass", "the plan has no links")


@pytest.mark.parametrize(
    "name", ["links as configured", "losses during the run", "links on time", "rates during the run", "compute on time"]
)
def test_what_a_simulation_computes_is_modelled_and_not_passed(tmp_path: Path, name: str) -> None:
    verdict, detail = Run(tmp_path, meta={"driver": "sim"}).verdict(name)
    assert verdict == "modelled"
    assert "nothing was measured" in detail


def test_a_fault_that_could_not_be_made_fails(tmp_path: Path) -> None:
    pause = FAULT | {"action": "pause", "node": "edge-0", "at": 2.0}
    run = Run(tmp_path, faults=[pause]).rounds()
    run.record.state(1.0, "edge-0", "running")
    run.record.fault(3.0, 1, "pause", "edge-0", "skipped", 1, "the driver docker cannot pause edge-0")
    verdict, detail = run.ended().verdict("faults took effect")
    assert verdict == "fail"
    assert "the driver docker cannot pause edge-0" in detail


def test_a_planned_join_is_moot_if_the_node_was_made_to_join_manually(tmp_path: Path) -> None:
    join = FAULT | {"action": "join", "node": "edge-0", "at": 2.0}
    run = Run(tmp_path, faults=[join]).rounds()
    run.record.event(1.0, None, "injected", 1, {"fault": 2, "user": "ada", "planned": {**join, "id": 2, "at": 1.0}})
    run.record.fault(1.0, 2, "join", "edge-0", "start", 1)
    run.record.state(1.0, "edge-0", "running")
    run.record.fault(3.0, 1, "join", "edge-0", "skipped", 1, "edge-0 has joined already and is running")
    verdict, detail = run.ended().verdict("faults took effect")
    assert verdict == "pass"
    assert "1 was made manually" in detail


def test_a_fault_of_a_node_that_is_away_already_is_moot(tmp_path: Path) -> None:
    pause = FAULT | {"action": "pause", "node": "edge-0", "at": 2.0}
    run = Run(tmp_path, faults=[pause]).rounds()
    run.record.state(2.5, "edge-0", "crashed", "fault")
    run.record.fault(3.0, 1, "pause", "edge-0", "skipped", 1, "edge-0 is not running but crashed")
    verdict, detail = run.ended().verdict("faults took effect")
    assert verdict == "pass"
    assert "1 met a node that was already away" in detail


@pytest.mark.parametrize(
    ("when", "verdict", "words"),
    [  # the training began at 1 s, and round 2 at 11 s
        ({"at": 2.0}, "pass", "1 of 1 planned fault took effect; the latest was 500 ms late"),
        ({"at": 1.0}, "unknown", "1 fault took effect more than 1 s late, the latest by 1.5 s: crash edge-0"),
        ({"round": 1}, "unknown", "the latest by 2.5 s: crash edge-0, planned at 0 s of the training"),
    ],
)
@pytest.mark.parametrize("later", [0.0, 89.0])
def test_faults_come_in_time(tmp_path: Path, when: dict[str, Any], verdict: str, words: str, later: float) -> None:
    """3 GB of a program's output held the orchestrator up for 89 s: a fault planned at 2 s came at 91 s."""
    run = Run(tmp_path, faults=[FAULT | {"action": "crash", "node": "edge-0"} | when]).rounds(last=12)
    run.record.fault(3.5 + later, 1, "crash", "edge-0", "start", 1)
    found = run.ended().verdict("faults took effect")
    if later:
        assert found[0] == "fail"
        assert "1 fault took effect more than 1 s late, the latest by " in found[1]
    else:
        assert found[0] == verdict
        assert words in found[1]


def test_faults_of_a_continued_run_wait_until_it_trains_again(tmp_path: Path) -> None:
    """It stopped at 4 s of training and trained again 10 s later, so what was planned at 6 s came at 17 s."""
    run = Run(tmp_path, faults=[FAULT | {"action": "crash", "node": "edge-0", "at": 6.0}]).rounds()
    run.record.event(5.0, None, "continued", 1, {})
    run.record.event(15.0, None, "training", None, {})
    run.record.fault(17.0, 1, "crash", "edge-0", "start", 1)
    assert run.ended().verdict("faults took effect") == ("pass", "1 of 1 planned fault took effect")


def test_nothing_is_said_of_the_end_of_a_run_that_continues(tmp_path: Path) -> None:
    crash = FAULT | {"action": "crash", "node": "edge-0", "round": 9}
    run = Run(tmp_path, faults=[crash])
    run.record.flush()
    with RunDirectory(tmp_path).held():
        found = {check["name"]: check["detail"] for check in checks(History.open(tmp_path))}
    assert found["faults took effect"] == "0 of 1 planned fault took effect; 1 to come"
    for name, detail in found.items():
        assert "ended before" not in detail, name
        assert not re.search(r"\bnever\b|was finished|were not", detail), name


def test_a_fault_that_met_no_node_because_it_came_late(tmp_path: Path) -> None:
    run = Run(tmp_path, faults=[FAULT | {"action": "pause", "node": "edge-0", "at": 2.0}]).rounds()
    run.record.state(2.5, "edge-0", "done")
    run.record.fault(13.0, 1, "pause", "edge-0", "skipped", 1, "edge-0 is not running but done")
    assert run.ended().verdict("faults took effect")[0] == "fail"


@pytest.mark.parametrize(("at", "expected"), [(5.0, "fail"), (18.5, "pass"), (500.0, "pass")])
def test_a_fault_that_was_never_made_fails_if_the_training_came_to_it(tmp_path: Path, at: float, expected: str) -> None:
    crash = FAULT | {"action": "crash", "node": "edge-0", "at": at}
    assert Run(tmp_path, faults=[crash]).rounds().ended().verdict("faults took effect")[0] == expected


@pytest.mark.parametrize(("round", "expected"), [(2, "fail"), (3, "pass")])
def test_the_same_for_faults_keyed_to_rounds(tmp_path: Path, round: int, expected: str) -> None:
    crash = FAULT | {"action": "crash", "node": "edge-0", "round": round}
    assert Run(tmp_path, faults=[crash]).rounds().ended().verdict("faults took effect")[0] == expected


@pytest.mark.parametrize(
    ("delivered", "expected"),
    [
        ({2.0: 10, 4.0: 20, 5.0: 20, 7.0: 30}, "pass"),  # 10 before the cut was felt, none in it, 10 after it
        ({2.0: 10, 4.0: 20, 5.0: 27, 7.0: 30}, "fail"),
    ],
)
def test_what_is_cut_carries_nothing(tmp_path: Path, delivered: dict[float, int], expected: str) -> None:
    run = Run(tmp_path, faults=[CUT]).rounds().crossed("device-0-0", "edge-0", delivered)
    run.record.fault(3.0, 1, "disconnect", "device-0-0", "start", 1)
    run.record.fault(6.0, 1, "disconnect", "device-0-0", "end", 1)
    verdict, detail = run.ended().verdict("faults took effect")
    assert verdict == expected
    assert ("device-0-0 → edge-0 (7 packets in device-0-0)" in detail) == (expected == "fail")


def test_overruns_fail_and_the_worst_is_named(tmp_path: Path) -> None:
    run = Run(tmp_path).rounds()
    run.record.event(2.0, "device-0-0", "overrun", 1, {"asked": 1.0, "taken": 1.1, "mode": "train"})
    run.record.event(3.0, "device-0-1", "overrun", 1, {"asked": 1.0, "taken": 1.9, "mode": "train"})
    verdict, detail = run.ended().verdict("compute on time")
    assert verdict == "fail"
    assert detail.startswith("2 steps on 2 nodes")
    assert "the latest is device-0-1, by 900 ms" in detail


def test_a_node_is_late_by_at_most_all_of_the_training(tmp_path: Path) -> None:
    """A clock that jumped by an hour makes a step an hour late."""
    run = Run(tmp_path).rounds()
    run.record.event(3.0, "device-0-1", "overrun", 1, {"asked": 1.0, "taken": 3601.0, "mode": "train"})
    assert "by 1 h 00 min or 100.0% of the training" in run.ended().verdict("compute on time")[1]


@pytest.mark.parametrize(
    ("busy", "words"),
    [  # in 20 s of two processors; the orchestrator used 2 s, the node 10 s
        (14.0, "this host is too slow for so many or so fast nodes; use fewer"),
        (36.0, "other processes used 1.2 of this host's 2 processors: stop them; use fewer"),
        (None, "this host is too slow for so many or so fast nodes, or other processes used its processors; use fewer"),
    ],
)
def test_who_made_the_steps_late(tmp_path: Path, busy: float | None, words: str) -> None:
    run = Run(tmp_path).rounds()
    run.record.event(3.0, "device-0-1", "overrun", 1, {"asked": 1.0, "taken": 1.9, "mode": "train"})
    for t, used in ((0.5, 3.0), (20.0, 13.0)):
        run.record.resources(t, "device-0-1", used, 0)
    if busy is not None:
        load = {"seconds": 20.0, "busy": busy, "idle": 40.0 - busy, "own": 2.0}
        run.record.event(21.0, None, "host load", None, load)
    assert words in run.ended().verdict("compute on time")[1]


def test_a_few_late_steps_are_reported_and_pass(tmp_path: Path) -> None:
    # 50 ms of a training of some twenty seconds: below the 2 % that a node may lose
    run = Run(tmp_path).rounds()
    run.record.event(2.0, "device-0-0", "overrun", 1, {"asked": 0.1, "taken": 0.15, "mode": "train"})
    verdict, detail = run.ended().verdict("compute on time")
    assert verdict == "pass"
    assert detail.startswith("1 step on 1 node")


def test_whether_a_run_that_never_trained_would_have_been_on_time_is_unknown(tmp_path: Path) -> None:
    Record.create(tmp_path, json.dumps(plan_of(Example())), {}).close()
    assert compute_on_time(History.open(tmp_path)) == ("unknown", "the training never started")


OVERLOAD = Overload(
    2.0,
    3.0,
    ("packets left late",),
    "the switch was held up",
    late=30,
    late_max=0.08,
    held_up=0.08,
    processors=0.4,
    switch=0.1,
)
LOST = {"before the switch, from edge-0": 1200}
SATURATED = replace(OVERLOAD, effects=("processors saturated",), late=0, late_max=0.0, held_up=0.0, processors=0.99)

# A training of 19 s in which 10,000 packets were delivered: 1 % are 100 packets, 2 % are 0.38 s.
OVERLOADED: list[tuple[list[Overload], str, str]] = [
    (
        [OVERLOAD],
        "pass",
        "30 packets more than 50 ms late, 0.30% of all; the links were held up for 80 ms, 0.4% of the training; the "
        "worst at 1.0 s for 1 s: the switch was held up",
    ),
    (
        [OVERLOAD, replace(OVERLOAD, start=9.0, end=11.0, late_max=0.4, held_up=0.4, cause="too many packets")],
        "fail",
        "60 packets more than 50 ms late, 0.60% of all; the links were held up for 480 ms, 2.5% of the training; the "
        "worst at 8.0 s for 2 s: too many packets; "
        "at most 1% of the packets, and 2% of the training, may be late",
    ),
    (
        [replace(OVERLOAD, late=101)],
        "fail",
        "101 packets more than 50 ms late, 1.01% of all; the links were held up for 80 ms, 0.4% of the training; the "
        "worst at 1.0 s for 1 s: the switch was held up; "
        "at most 1% of the packets, and 2% of the training, may be late",
    ),
    (  # a packet counts twice if it waited to be read and left late; a clock jumped by an hour
        [replace(OVERLOAD, late=20_000, late_max=3600.0, held_up=3600.0)],
        "fail",
        "20,000 packets more than 50 ms late, 100.00% of all; the links were held up for 1 h 00 min, 100.0% of the "
        "training; the worst at 1.0 s for 1 s: the switch was held up; "
        "at most 1% of the packets, and 2% of the training, may be late",
    ),
    (
        [replace(OVERLOAD, late=0, held_up=0.0, lost=LOST)],
        "fail",
        "1,200 packets lost beyond the profile (1,200 before the switch, from edge-0); the worst at 1.0 s for 1 s: "
        "the switch was held up",
    ),
    (
        [replace(SATURATED, lost={FULL_BACKLOG: 3})],
        "unknown",
        "3 packets lost in this host's backlog, possibly of this run; this host's processors were saturated for 1 s; "
        "the worst at 1.0 s for 1 s: the switch was held up",
    ),
    # Recorded in two pieces, it was one stretch; busy processors by themselves harm no packet.
    ([SATURATED, replace(SATURATED, start=3.0, end=5.5)], "pass", "this host's processors were saturated for 3.5 s"),
]


@pytest.mark.parametrize(("overloads", "verdict", "detail"), OVERLOADED, ids=range(len(OVERLOADED)))
def test_links_that_were_late(tmp_path: Path, overloads: list[Overload], verdict: str, detail: str) -> None:
    run = Run(tmp_path).rounds().crossed("device-0-0", "edge-0", {2.0: 10_000})
    for each in overloads:
        run.record.event(each.end, None, "overload", None, each.to_json())
    assert run.verdict("links on time") == (verdict, detail)


def looked(asked: float, measured: float, verdict: str, astray: int = 0) -> dict[str, Any]:
    """What a look at two links finds, of which so many are astray."""
    told = {
        "packets": 10_000,
        "lost": round(10_000 * measured),
        "asked": asked,
        "measured": measured,
        "low": 0.0,
        "high": 0.02,
        "verdict": verdict,
    }
    return {
        "links": 2,
        "packets": 20_000,
        "told": 1,
        "astray_count": astray,
        "astray": [{"link": "device-0-0 → edge-0", **told}][:astray],
        "classes": [{"class": "device-edge", "links": 2, **told}],
    }


LOOKS: list[tuple[list[dict[str, Any]], str, str]] = [
    (
        [looked(0.01, 0.0103, "pass")],
        "pass",
        "20,000 packets sent over 2 link directions: device-edge lost 1.03%, configured 1%; 1 carried too few "
        "packets to be judged alone",
    ),
    (
        [looked(0.0, 0.0, "pass")],
        "pass",
        "20,000 packets sent over 2 link directions: nothing was lost, as configured; 1 carried too few packets to be "
        "judged alone",
    ),
    (
        [looked(0.01, 0.03, "fail", 1), looked(0.01, 0.0301, "fail", 1)],
        "fail",
        "20,000 packets sent over 2 link directions; 1 of them did not lose as configured, first seen at 9 s: "
        "device-0-0 → edge-0 lost 301 of 10,000, 3.01%, configured 1%",
    ),
    (
        [looked(0.01, 0.013, "fail")],
        "fail",
        "20,000 packets sent over 2 link directions; each link alone may be as configured, but the links of a class "
        "together are not: device-edge lost 1.3%, configured 1%",
    ),
    (
        [
            looked(0.0, 0.0, "pass")
            | {"overflowed": 4292, "most_overflowed": {"link": "device-0 → cloud", "packets": 4292}, "cut_dropped": 3}
        ],
        "pass",
        "20,000 packets sent over 2 link directions: nothing was lost at random, as configured; 4,292 packets found no "
        "room in the buffer of device-0 → cloud; 3 packets met a link that was cut; 1 carried too few packets to be "
        "judged alone",
    ),
    (
        [
            looked(0.0, 0.0, "pass")
            | {"nat_expired": 5, "most_nat_expired": {"link": "cloud → device-0", "packets": 3}, "cut_dropped": 0}
        ],
        "pass",
        "20,000 packets sent over 2 link directions: nothing was lost at random, as configured; 5 packets came for "
        "flows that a NAT had forgotten, most of them (3) on cloud → device-0; 1 carried too few packets to be "
        "judged alone",
    ),
    ([], "unknown", "the links were not sampled during the run"),
]


@pytest.mark.parametrize(("looks", "verdict", "detail"), LOOKS, ids=range(len(LOOKS)))
def test_links_during_the_run(tmp_path: Path, looks: list[dict[str, Any]], verdict: str, detail: str) -> None:
    run = Run(tmp_path).rounds()
    for number, data in enumerate(looks, start=1):
        run.record.event(10.0 * number, None, "links looked at", None, data)
    assert run.verdict("losses during the run") == (verdict, detail)


def test_links_were_on_time(tmp_path: Path) -> None:
    assert Run(tmp_path / "never read").verdict("links on time")[0] == "unknown"
    assert Run(tmp_path / "kernel", meta={"engine": "kernel"}).verdict("links on time")[0] == "pass"
    read = Run(tmp_path / "read").crossed("device-0-0", "edge-0", {2.0: 10})
    assert read.verdict("links on time")[0] == "pass"


def test_a_node_that_does_not_answer_fails(tmp_path: Path) -> None:
    run = Run(tmp_path).rounds().states(device_0_1="running").ended()
    expected = "1 of 4 nodes did not answer at the end: device-0-1 (running)"
    assert run.verdict("nodes responded") == ("fail", expected)


@pytest.mark.parametrize(("action", "state"), [("crash", "crashed"), ("leave", "left"), ("pause", "paused")])
def test_a_node_that_a_fault_took_away_need_not_answer(tmp_path: Path, action: str, state: str) -> None:
    fault = FAULT | {"action": action, "node": "device-0-1", "at": 2.0}
    run = Run(tmp_path, faults=[fault]).rounds().states(device_0_1=state)
    run.record.fault(3.0, 1, action, "device-0-1", "start", 1)
    assert run.ended().verdict("nodes responded") == ("pass", "3 of 4 nodes answered at the end, 1 away as planned")


def test_a_node_that_never_comes_back_from_a_fault_fails(tmp_path: Path) -> None:
    fault = FAULT | {"action": "crash", "node": "device-0-1", "at": 2.0}
    run = Run(tmp_path, faults=[fault]).rounds().states(device_0_1="restarting")
    run.record.fault(3.0, 1, "crash", "device-0-1", "start", 1)
    run.record.fault(9.0, 1, "crash", "device-0-1", "end", 1)
    assert run.ended().verdict("nodes responded")[0] == "fail"


def test_a_node_whose_time_to_join_had_not_come_need_not_answer(tmp_path: Path) -> None:
    fault = FAULT | {"action": "join", "node": "device-0-1", "at": 60.0}
    run = Run(tmp_path, faults=[fault]).rounds().states(device_0_1="planned").ended()
    assert run.verdict("nodes responded")[0] == "pass"


def test_nodes_of_a_run_that_was_cut_short_are_unknown(tmp_path: Path) -> None:
    assert Run(tmp_path).rounds(1).verdict("nodes responded")[0] == "unknown"


COURSE = {
    "links": "edge-0 → cloud",
    "count": 1,
    "schedule": "at 1s loss 5%",
    "changes": 99,
    "overtaken": 0,
    "failures": 0,
    "late_p99": 0.004,
    "late_max": 0.02,
}


def scheduled(directory: Path, *courses: dict[str, Any]) -> Run:
    """A run in which one direction of a link changes over time."""
    planned = plan_of(Example(edges=1, devices_per_edge=2, rounds=2, with_faults=False))["links"]
    planned[0] = planned[0] | {"schedule": {"steps": [{"at": "1s", "loss": "5%"}]}}
    run = Run(directory).rounds()
    plan = json.loads((directory / "plan.json").read_text())
    (directory / "plan.json").write_text(json.dumps({**plan, "links": planned}))
    for course in courses:
        run.record.event(20.0, None, "schedule ended", None, COURSE | course)
    return run.ended()


IDLE = {"links": "device-0 → cloud", "changes": 0, "late_p99": 0.0, "late_max": 0.0}
SCHEDULED: list[tuple[list[dict[str, Any]], str, str]] = [
    ([{}], "pass", "99 changes of 1 link direction, 99% of them at most 4 ms late, the latest 20 ms"),
    (
        [{}, IDLE | {"first": 36_000.0}, IDLE | {"links": "edge-1 → cloud", "first": None}],
        "unknown",
        "99 changes of 1 link direction, 99% of them at most 4 ms late, the latest 20 ms; no change of its schedule "
        "took effect on device-0 → cloud (first change at 10 h 00 min), edge-1 → cloud (its schedule changes nothing)",
    ),
    ([{}, {"changes": 0}], "pass", "99 changes of 1 link direction, 99% of them at most 4 ms late, the latest 20 ms"),
    (
        [{}, {"late_p99": 0.051, "late_max": 0.06}],
        "fail",
        "198 changes of 1 link direction, 99% of them at most 51 ms late, the latest 60 ms, in edge-0 → cloud: this "
        "host is too slow for so many changes, or other processes used its processors",
    ),
    (
        [{"overtaken": 2}],
        "fail",
        "99 changes of 1 link direction, 99% of them at most 4 ms late, the latest 20 ms; 2 were skipped because the "
        "next change was due: this host is too slow for so many changes, or other processes used its processors",
    ),
    ([{"overtaken": 1}], "pass", "99 changes of 1 link direction, 99% of them at most 4 ms late, the latest 20 ms"),
    ([], "unknown", "the run ended before this was recorded"),
]


@pytest.mark.parametrize(("courses", "verdict", "detail"), SCHEDULED, ids=range(len(SCHEDULED)))
def test_links_over_time(tmp_path: Path, courses: list[dict[str, Any]], verdict: str, detail: str) -> None:
    assert scheduled(tmp_path, *courses).verdict("links over time") == (verdict, detail)


def test_changes_that_could_not_be_made(tmp_path: Path) -> None:
    run = scheduled(tmp_path, {"failures": 3})
    run.record.event(3.0, None, "schedule failed", None, {"link": "edge-0 → cloud", "error": "tc: no such device"})
    assert run.verdict("links over time") == (
        "fail",
        "99 changes of 1 link direction, 99% of them at most 4 ms late, the latest 20 ms; 3 could not be made: tc: no "
        "such device",
    )


def test_channels_over_time(tmp_path: Path) -> None:
    run = scheduled(tmp_path, {})
    plan = json.loads((tmp_path / "plan.json").read_text())
    media = [{"name": "cell", "channels": {}, "members": [], "schedules": {"cell up": {}, "cell down": {}}}]
    (tmp_path / "plan.json").write_text(json.dumps({**plan, "media": media}))
    verdict, detail = run.verdict("links over time")
    assert (verdict, detail.partition(",")[0]) == ("pass", "99 changes of 1 link direction and 2 shared channels")


def test_links_that_were_not_to_change(tmp_path: Path) -> None:
    assert Run(tmp_path).ended().verdict("links over time")[0] == "pass"


def carrying(directory: Path, megabits: Sequence[float], **plan: Any) -> Run:
    """Each second, device-0-0 sends its edge so many megabits, over a link of 40 mbit."""
    run = Run(directory, **plan)
    row = dict.fromkeys(COUNTERS, 0) | {"source": "device-0-0", "target": "edge-0", "link_class": "device-edge"}
    for second in range(len(megabits) + 1):
        count = int(sum(megabits[:second]) * 1e6 / 8)
        run.record.counters(2.0 + second, [row | {"delivered": second, "offered": second, "delivered_bytes": count}])
    return run


def test_a_link_that_carries_more_than_its_rate_fails(tmp_path: Path) -> None:
    # 5 s of 48 Mbit/s in what may have been 5.5 s: 43.6 Mbit/s at least, where 41.2 are accepted. So 41.2 * 5.5 / 5
    # are accepted in what is read as 5 s, and 3 frames that may have been sent before.
    verdict, detail = carrying(tmp_path, [1, 48, 48, 48, 48, 48, 1]).verdict("rates during the run")
    assert (verdict, detail) == (
        "fail",
        "carried more than their rate: device-0-0 → edge-0 48 mbit of 40 mbit (up to 45.4 mbit accepted over 5 s)",
    )


def test_a_full_link_and_a_burst_of_a_second_pass(tmp_path: Path) -> None:
    verdict, detail = carrying(tmp_path, [40] * 8 + [48, 0, 0, 0, 0]).verdict("rates during the run")
    assert verdict == "pass"
    # (4 * 40 + 48) / 5 of 40 Mbit/s; see above for what is accepted
    assert detail.endswith("device-edge 41.6 mbit of 40 mbit (up to 45.4 mbit accepted over 5 s)")


def test_rates_that_change_or_were_hardly_used_are_not_judged(tmp_path: Path) -> None:
    fast = [80.0] * 8
    assert "rates during the run" not in {each["name"] for each in said(carrying(tmp_path / "short", [80.0] * 3))}
    links = plan_of(Example(edges=1, devices_per_edge=2, rounds=2, with_faults=False))["links"]
    scheduled = [{**link, "schedule": {}} for link in links]
    run = carrying(tmp_path / "scheduled", fast)
    plan = json.loads((run.directory / "plan.json").read_text())
    (run.directory / "plan.json").write_text(json.dumps({**plan, "links": scheduled}))
    assert "rates during the run" not in {each["name"] for each in said(run)}
    degrade = FAULT | {"action": "degrade", "node": "device-0-0", "at": 2.0, "links": CUT["links"]}
    faults = [degrade | {"profile": {"rate": "100mbit"}}]
    assert "rates during the run" not in {
        each["name"] for each in said(carrying(tmp_path / "degraded", fast, faults=faults))
    }


def said(run: Run) -> list[Check]:
    run.record.close()
    return checks(History.open(run.directory))


def test_refused_messages_fail_and_those_that_a_node_refused_are_its_own_affair(tmp_path: Path) -> None:
    run = Example().build(tmp_path)
    with contextlib.closing(sqlite3.connect(run / "run.db")) as record, record:
        rows = [
            (1.0, "edge-0", "bad_message", '{"peer": "device-0-0", "reason": "no round"}'),
            (2.0, "cloud", "bad_message", '{"reason": "the first", "count": 1}'),
            (3.0, "cloud", "bad_message", '{"reason": "the last", "count": 7}'),
        ]
        record.executemany("INSERT INTO event (t, node, name, data) VALUES (?, ?, ?, ?)", rows)
    record.close()
    (found,) = [each for each in checks(History.open(run)) if each["name"] == "messages accepted"]
    assert (found["verdict"], found["detail"].partition(": ")[2]) == ("fail", "7 of cloud, the last: the last")
