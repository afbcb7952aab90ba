from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.record.directory import RunDirectory
from orchestrator.record.schema import COUNTERS
from orchestrator.record.writer import Record
from orchestrator.results.checks.expectations import as_expected
from orchestrator.results.history import History
from orchestrator.scenario.reading import parse
from orchestrator.scenario.schema import effective
from tests.orchestrator.example_run import Example, plan_of
from tests.texts import containing

NODES = ("cloud", "edge-0", "device-0-0", "device-0-1")


class Run:
    """Two rounds of a cloud, an edge and two devices, from 1 s to 20 s, with 3 MB over one class of links and 1 MB over
    the other. None of these if it was not ``trained``."""

    def __init__(self, directory: Path, expect: dict[str, Any], *, trained: bool = True) -> None:
        text = f"algorithm: hierfavg\nexpect: {json.dumps(expect)}"
        planned = plan_of(Example(edges=1, devices_per_edge=2, rounds=2, with_faults=False))
        self.directory = directory
        self.record = Record.create(directory, json.dumps(planned), {"effective": effective(parse(text, "f.yaml"))})
        if trained:
            self.train()

    def train(self) -> None:
        self.record.event(1.0, None, "training", None, {})
        for round in (1, 2):
            self.record.event(10.0 * round - 9, "cloud", "round", round, {"phase": "start"})
            for node, loss in zip(NODES, (0.5, 0.6, 0.2, 0.4), strict=True):
                scope = "global" if node == "cloud" else "train"
                self.record.metric(10.0 * round - 1, node, round, scope, "loss", loss + (2 - round))
            self.record.metric(10.0 * round - 1, "cloud", round, "global", "accuracy", 0.3 * round)
            self.record.event(10.0 * round, "cloud", "round", round, {"phase": "end"})
        ends = (("device-0-0", "edge-0", "device-edge", 3), ("edge-0", "cloud", "edge-cloud", 1))
        for source, target, link_class, size in ends:
            row = dict.fromkeys(COUNTERS, 0) | {"source": source, "target": target, "link_class": link_class}
            self.record.counters(20.0, [row | {"delivered": 1000, "delivered_bytes": size * 10**6}])

    def assessment(self, ended: str = "rounds", **verdicts: str) -> tuple[str, str] | None:
        self.record.outcome(21.0, {"ended": ended})
        self.record.close()
        return as_expected(History.open(self.directory), lambda name: verdicts.get(name))


@pytest.mark.parametrize(
    ("expect", "verdict", "sentence"),
    [
        ({"accuracy": "60%"}, "pass", "accuracy 60.0%, expected 60% at least"),
        ({"accuracy": "61%"}, "fail", "accuracy 60.0%, expected 61% at least"),
        ({"rounds": 2}, "pass", "2 rounds done, expected 2 at least"),
        ({"rounds": 3}, "fail", "2 rounds done, expected 3 at least"),
        ({"duration": "19s"}, "pass", "the training took 19 s, expected 19s at most"),
        ({"duration": "18s"}, "fail", "the training took 19 s, expected 18s at most"),
        ({"bytes": "4mb"}, "pass", containing("4 MB", "all links, expected 4mb")),
        ({"bytes": {"total": "3mb"}}, "fail", containing("4 MB", "all links, expected 3mb")),
        ({"bytes": {"edge-cloud": "1mb"}}, "pass", "1 MB over edge-cloud links, expected 1mb at most"),
        ({"bytes": {"device-edge": "2mb"}}, "fail", "3 MB over device-edge links, expected 2mb at most"),
        ({"metrics": [{"name": "loss", "at_most": 0.5}]}, "pass", "global loss 0.5, expected 0.5 at most"),
        (
            {"metrics": [{"name": "loss", "scope": "train", "at_most": 0.3}]},
            "fail",
            containing("mean of 3 nodes, expected 0.3"),  # (0.6 + 0.2 + 0.4) / 3, of the last round
        ),
        (
            {"metrics": [{"name": "loss", "scope": "train", "node": "device-0-0", "at_least": 0.1, "at_most": 0.3}]},
            "pass",
            "train loss of device-0-0 0.2, expected 0.1 at least and 0.3 at most",
        ),
        (
            {"metrics": [{"name": "alpha", "scope": "personal", "at_least": "20%"}]},
            "fail",
            containing("personal alpha was reported, expected 0.2"),
        ),
        ({"checks": ["finished"]}, "pass", "check 'finished': pass, expected pass"),
        ({"checks": ["learned"]}, "fail", "check 'learned': unknown, expected pass"),
        ({"checks": ["rates during the run"]}, "fail", containing("check 'rates during the run': nothing")),
    ],
)
def test_each_expectation_is_a_sentence(tmp_path: Path, expect: dict[str, Any], verdict: str, sentence: str) -> None:
    assert Run(tmp_path, expect).assessment(finished="pass", learned="unknown") == (verdict, sentence)


@pytest.mark.parametrize("verdict", ["modelled", "measured"])
def test_a_check_that_judges_nothing_meets_the_expectation(tmp_path: Path, verdict: str) -> None:
    found = Run(tmp_path, {"checks": ["links on time"]}).assessment(**{"links on time": verdict})
    assert found is not None
    assert found[0] == "pass"


@pytest.mark.parametrize(
    ("reporting", "words"),
    [
        (("device-0-0", "device-0-1"), "0.5, the mean of 2 nodes,"),
        (("edge-0", "device-0-0"), "alpha 0.5, the mean"),  # of the edge and two devices
    ],
)
def test_a_mean_says_what_it_covers(tmp_path: Path, reporting: tuple[str, str], words: str) -> None:
    run = Run(tmp_path, {"metrics": [{"name": "alpha", "scope": "own", "at_least": 0}]})
    for node, value in zip(reporting, (0.25, 0.75), strict=True):
        run.record.metric(19.0, node, 2, "own", "alpha", value)
    assert words in (run.assessment() or "")[1]


def test_of_many_metrics_twelve_parts_are_named(tmp_path: Path) -> None:
    """Of 3 + 10 metrics, 11 and the number of the others."""
    run = Run(tmp_path, {"metrics": [{"name": "beta", "at_least": 0}]})
    for number in range(10):
        run.record.metric(19.0, "cloud", 2, "global", f"alpha{number}", 0.5)
    assert " and 2 more" in (run.assessment() or "")[1]


def test_a_run_that_never_trained_meets_no_expectation_of_it(tmp_path: Path) -> None:
    expect = {"accuracy": "1%", "duration": "1h", "bytes": {"edge-cloud": "1kb"}}
    found = Run(tmp_path, expect, trained=False).assessment("failed")
    assert found is not None
    assert found[0] == "fail"
    wrong, _, right = found[1].partition("; the others were met: ")
    assert "no accuracy was reported" in wrong
    assert "the training never started" in wrong
    assert right.startswith("0 B over edge-cloud links, ")


def test_what_was_not_met_comes_first(tmp_path: Path) -> None:
    assert Run(tmp_path, {"accuracy": "10%", "rounds": 3, "bytes": "1mb"}).assessment() == (
        "fail",
        containing("2 rounds done, expected", "4 MB", "60.0%"),
    )


def test_a_figure_that_is_not_a_number_meets_no_limit(tmp_path: Path) -> None:
    run = Run(tmp_path, {"metrics": [{"name": "loss", "at_most": 1000}]})
    run.record.metric(20.0, "cloud", 2, "global", "loss", float("nan"))
    assert run.assessment() == ("fail", "global loss nan, expected 1000 at most")


@pytest.mark.parametrize(
    ("expect", "ended"), [({}, "rounds"), ({"abandoned": "0%"}, "rounds"), ({"rounds": 2}, "calibrated")]
)
def test_nothing_is_said_where_nothing_is_expected_or_no_one_was_to_train(
    tmp_path: Path, expect: dict[str, Any], ended: str
) -> None:
    assert Run(tmp_path, expect).assessment(ended) is None


def test_a_run_that_continues_is_not_judged(tmp_path: Path) -> None:
    run = Run(tmp_path, {"rounds": 3})
    run.record.flush()
    with RunDirectory(tmp_path).held():
        assert as_expected(History.open(tmp_path), lambda name: None) == ("unknown", "the run is going on")
