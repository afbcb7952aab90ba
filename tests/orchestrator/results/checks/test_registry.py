from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from orchestrator.record.directory import RunDirectory
from orchestrator.record.events.run import Checked
from orchestrator.record.schema import COUNTERS
from orchestrator.record.writer import Record
from orchestrator.results.checks import registry
from orchestrator.results.checks.registry import Check, checks, overall
from orchestrator.results.checks.verdicts import Verdict
from orchestrator.results.history import History
from orchestrator.scenario.sections.expectations import CheckName
from tests.orchestrator.example_run import Example, plan_of
from tests.texts import containing

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

    def __init__(
        self,
        directory: Path,
        *,
        links: bool = True,
        meta: dict[str, Any] | None = None,
        trained: bool = True,
        **plan: Any,
    ) -> None:
        planned = plan_of(Example(edges=1, devices_per_edge=2, rounds=2, with_faults=False)) | plan
        planned["links"] = planned["links"] if links else []
        self.directory = directory
        self.nodes = [node["name"] for node in planned["nodes"]]
        self.record = Record.create(directory, json.dumps(planned), {"engine": "userspace", **(meta or {})})
        if trained:
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
        ("accuracy", 1, "pass", "was reached after 1 of 2"),
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


@pytest.mark.parametrize(
    ("planned", "verdict", "words"),
    [(0, "pass", "0 of 0 rounds done"), (1, "fail", "without finishing a round")],
)
def test_a_run_without_rounds_has_finished_if_none_was_planned(
    tmp_path: Path, planned: int, verdict: str, words: str
) -> None:
    found = Run(tmp_path, stop={"rounds": planned}).ended().verdict("finished")
    assert found[0] == verdict
    assert words in found[1]


def test_checks_that_are_expected_to_pass_are_asked(tmp_path: Path) -> None:
    run = Run(tmp_path, meta={"effective": {"expect": {"checks": ["finished", "learned"]}}}).rounds(2).ended()
    assert run.verdict("result as expected") == (
        "fail",
        containing("check 'learned': unknown, expected", "'finished'"),
    )


def test_every_check_may_be_expected_to_pass_but_the_one_that_asks() -> None:
    assert set(get_args(CheckName)) == registry.CHECKS.keys() - {"result as expected", "messages accepted"}


def test_a_run_that_used_its_devices_bytes_has_finished(tmp_path: Path) -> None:
    run = Run(tmp_path, stop={"rounds": 10, "bytes": 500_000_000}).rounds(3).ended("bytes")
    verdict, detail = run.verdict("finished")
    assert verdict == "pass"
    assert detail == containing("sent and received 500 MB after", "3 of 10 rounds")


def test_finished_without_an_outcome(tmp_path: Path) -> None:
    run = Run(tmp_path).rounds(1)
    with RunDirectory(tmp_path).held():
        assert "finished" not in [check["name"] for check in checks(History.open(tmp_path))]  # it goes on
    verdict, detail = run.verdict("finished")
    assert (verdict, detail) == ("fail", containing("after 1 of 2 rounds", f"`resume {tmp_path.name}`"))


def test_abandoned_rounds_are_reported(tmp_path: Path) -> None:
    run = Run(tmp_path).rounds(2)
    run.record.event(30.0, "cloud", "round", 3, {"phase": "start"})
    run.record.event(31.0, "cloud", "round_abandoned", 3, {})
    assert "1 abandoned" in run.ended().verdict("finished")[1]


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


@pytest.mark.parametrize("name", ["compute on time", "links on time"])
def test_what_cannot_be_late_in_virtual_time_is_modelled_and_not_passed(tmp_path: Path, name: str) -> None:
    run = Run(tmp_path, meta={"driver": "virtual"}).rounds()
    run.record.engine("kernel", {})
    run.record.event(2.0, "device-0-0", "overrun", 1, {"asked": 1.0, "taken": 9.0, "mode": "train"})
    verdict, detail = run.ended().verdict(name)
    assert verdict == "modelled"
    assert "virtual time" in detail


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


@pytest.mark.parametrize(
    ("verdict", "shown"), [("fail", "fail"), ("pass", "pass"), ("unknown", "unknown"), ("superb", "unknown")]
)
def test_the_latest_verdict_of_a_plug_ins_check_counts_if_it_is_one(tmp_path: Path, verdict: str, shown: str) -> None:
    run = Run(tmp_path).rounds().ended()
    for each in ("pass", verdict):
        run.record.add_event(22.0, Checked(name="mine", verdict=each, detail="7 of 9"))
    assert run.verdict("mine") == (shown, "7 of 9")
