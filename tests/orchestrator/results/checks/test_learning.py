from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from orchestrator.record.rows import Event
from orchestrator.record.writer import Record
from orchestrator.results.checks.learning import Best, Chance, abandoned, chance, diverged, judged, learned, mean_chance
from orchestrator.results.history import History
from tests.orchestrator.example_run import Example, plan_of
from tests.texts import containing

EVEN = Chance(0.1, 0.01)


def event(name: str, node: str, round: int | None, **data: Any) -> Event:
    return Event(1.0, node, name, round, data)


def test_chance_is_the_accuracy_of_the_most_frequent_label() -> None:
    assert chance([10, 30, 60], 100)[:2] == pytest.approx((0.6, math.sqrt(0.6 * 0.4 / 100)))
    assert chance([50] * 10, 100).limit == pytest.approx(0.1 + 3 * 0.03)  # √(0.1 · 0.9 / 100) = 0.03
    assert chance([7, 0], 7) == Chance(1.0, 0.0)  # a test set of one label tells nothing


def test_only_what_is_better_than_the_limit_surpasses_chance() -> None:
    accuracy = Chance(0.25, 0.125)  # the limit is 0.25 + 3 · 0.125
    assert not accuracy.surpassed_by(0.625)
    error = Chance(1.0, 0.25, "mae")  # 1 - 3 · 0.25
    assert not error.surpassed_by(0.25)
    assert error.surpassed_by(0.24)


def test_the_mean_over_several_test_sets_strays_less() -> None:
    mean = mean_chance([Chance(0.2, 0.03), Chance(0.4, 0.04)])
    assert mean[:2] == pytest.approx((0.3, 0.025))  # √(0.03² + 0.04²) / 2


@pytest.mark.parametrize(
    ("accuracies", "verdict", "words"),
    [
        ([], "unknown", "no accuracy was reported"),
        ([0.1], "unknown", "at best 10.0% here; guessing reaches 10.0%, by chance 13.0%"),
        ([0.13], "unknown", "no accuracy was above guessing"),
        ([0.131], "pass", "accuracy 13.1% here in round 2; guessing reaches 10.0%"),
        ([0.1, 0.5], "pass", "accuracy 50.0% here in round 2"),
    ],
)
def test_an_accuracy_must_be_better_than_luck(accuracies: list[float], verdict: str, words: str) -> None:
    found = judged([Best("here", accuracy, 2, EVEN) for accuracy in accuracies])
    assert found[0] == verdict
    assert words in found[1]


def test_where_it_diverged_is_reported_once_for_each_node() -> None:
    assert diverged([]) is None
    said = diverged(
        [
            event("not_finite", "device-0", 3, what="loss", scope="train"),
            event("not_finite", "device-0", 3, what="fc.weight", kind="update"),
            event("not_finite", "cloud", 3, what="fc.weight", kind="update", peer="device-0"),
            event("not_finite", "device-0", 4, what="loss", scope="train"),
            event("not_finite", "cloud", 4, what="fc.weight", kind="update", peer="device-0"),
            event("not_finite", "device-1", None, what="fc.bias", kind="update", at="mine.py:31"),
        ]
    )
    assert said == (
        containing("device-0", "round 3 (train loss), device-1 (fc.bias", "mine.py:31); 2 messages of device-0")
    )


def test_gatherings_are_counted_by_node() -> None:
    rows = [("cloud", 2, 1), ("cloud", 2, 2), ("edge-0", 1, 0), ("edge-1", 0, 0)]
    events = [event("round", node, 1, phase="end", gatherings=every, abandoned=of) for node, every, of in rows]
    assert abandoned([event("round", "cloud", 1, phase="start"), *events]) == {"cloud": (3, 4)}


class Run:
    """A cloud, an edge and two devices; what they report is up to the test."""

    def __init__(self, directory: Path, effective: dict[str, Any] | None = None, **plan: Any) -> None:
        planned = plan_of(Example(edges=1, devices_per_edge=2, rounds=4, with_faults=False)) | plan
        self.directory = directory
        self.record = Record.create(directory, json.dumps(planned), {"effective": effective or {}})

    def rounds(self, node: str = "cloud", abandoned: int = 0, last: int = 4) -> Run:
        for round in range(1, last + 1):
            ended = {"phase": "end", "gatherings": 1, "abandoned": int(round <= abandoned)}
            self.record.event(10.0 * round - 9, node, "round", round, {"phase": "start"})
            self.record.event(10.0 * round, node, "round", round, ended)
        return self

    def accuracy(self, *values: float, node: str = "cloud", scope: str = "global") -> Run:
        for round, value in enumerate(values, 1):
            self.record.metric(10.0 * round, node, round, scope, "accuracy", value)
        return self

    def assessment(self, ended: str = "rounds") -> tuple[str, str] | None:
        self.record.outcome(50.0, {"ended": ended})
        self.record.close()
        return learned(History.open(self.directory))


def test_a_run_that_learned_passes(tmp_path: Path) -> None:
    found = Run(tmp_path).rounds().accuracy(0.1, 0.5, 0.8, 0.7).assessment()
    assert found == ("pass", containing("80.0%", "set in round 3", "10.0%"))


@pytest.mark.parametrize(("reported", "words"), [((), "no accuracy was reported"), ((0.1, 0.105), "above guessing")])
def test_silence_and_a_model_at_chance_are_unknown(tmp_path: Path, reported: tuple[float, ...], words: str) -> None:
    found = Run(tmp_path).rounds().accuracy(*reported).assessment()
    assert found is not None
    assert found[0] == "unknown"
    assert words in found[1]


def test_the_number_of_samples_that_are_evaluated_decides_what_is_luck(tmp_path: Path) -> None:
    few = {"name": "hierfavg", "params": {"evaluate_samples": 100}}  # 0.1 + 3 · 0.03; of all 10,000 it is 0.109
    assert (Run(tmp_path / "all").rounds().accuracy(0.15).assessment() or "")[0] == "pass"
    assert (Run(tmp_path / "few", algorithm=few).rounds().accuracy(0.15).assessment() or "")[0] == "unknown"


def test_a_regression_is_compared_with_the_median(tmp_path: Path) -> None:
    """The limit is 0.9 - 3 · 0.1."""
    for value, verdict in ((0.59, "pass"), (0.61, "unknown")):
        run = Run(tmp_path / verdict, data={"task": "regression", "guess": [0.9, 0.1]}).rounds()
        run.record.metric(10.0, "cloud", 1, "global", "mae", 2.0)
        run.record.metric(20.0, "cloud", 2, "global", "mae", value)
        found = run.assessment()
        assert found is not None
        assert found[0] == verdict
        assert f"{value} on the global test set" in found[1]


def test_each_token_of_a_sequence_counts(tmp_path: Path) -> None:
    """100 sequences of 64 tokens: 0.1 + 3 · 0.004. Of 20 of them: 0.1 + 3 · 0.008."""
    data = {"classes": 10, "test_samples": 100, "test_counts": [640] * 10}
    few = {"name": "hierfavg", "params": {"evaluate_samples": 20}}
    assert (Run(tmp_path / "all", data=data).rounds().accuracy(0.12).assessment() or "")[0] == "pass"
    assert (Run(tmp_path / "a", data=data, algorithm=few).rounds().accuracy(0.12).assessment() or "")[0] == "unknown"
    assert (Run(tmp_path / "b", data=data, algorithm=few).rounds().accuracy(0.13).assessment() or "")[0] == "pass"


def test_plans_that_do_not_report_the_shares_of_labels_have_equal_ones(tmp_path: Path) -> None:
    data = {"classes": 4, "test_samples": 10_000}
    assert (Run(tmp_path / "a", data=data).rounds().accuracy(0.26).assessment() or "")[0] == "unknown"
    assert (Run(tmp_path / "b", data=data).rounds().accuracy(0.27).assessment() or "")[0] == "pass"
    assert (Run(tmp_path / "c", data={}).rounds().accuracy(0.9).assessment() or "")[0] == "unknown"


def test_coordinators_with_labels_of_their_own_learned_though_no_one_knows_all_labels(tmp_path: Path) -> None:
    """A silo that knows two of ten labels has at most 20 % on all, and 95 % where a guess has half."""
    nodes = plan_of(Example(edges=1, devices_per_edge=2))["nodes"]
    for node in nodes:
        node["test_counts"] = {"edge": [500, 500], "device": [100, 100]}.get(node["tier"], [])
    silo = Run(tmp_path / "silo", nodes=nodes).rounds().accuracy(0.1).accuracy(0.95, node="edge-0", scope="own")
    assert silo.assessment() == (
        "pass",
        containing("accuracy 95.0% on coordinators'", "50.0%"),
    )
    device = Run(tmp_path / "device", nodes=nodes).rounds().accuracy(0.1).accuracy(0.95, node="device-0-0", scope="own")
    assert (device.assessment() or "")[0] == "unknown"  # it trained alone, whatever became of the federation


def test_what_is_not_finite_fails_however_accurate_the_model_is(tmp_path: Path) -> None:
    run = Run(tmp_path).rounds().accuracy(0.9)
    run.record.event(12.0, "device-0-1", "not_finite", 2, {"what": "loss", "scope": "train"})
    assert run.assessment() == ("fail", containing("device-0-1 in round 2 (train loss)"))


@pytest.mark.parametrize(
    ("count", "expect", "verdict"),
    [(2, {}, "pass"), (3, {}, "fail"), (3, {"abandoned": "75%"}, "pass"), (1, {"abandoned": "0%"}, "fail")],
)
def test_rounds_may_come_to_nothing_as_often_as_the_scenario_says(
    tmp_path: Path, count: int, expect: dict[str, str], verdict: str
) -> None:
    found = Run(tmp_path, {"expect": expect}).rounds().rounds("edge-0", abandoned=count).accuracy(0.9).assessment()
    assert found is not None
    assert found[0] == verdict
    assert f"answers: {count} of 4 at edge-0" in found[1]


def test_who_did_not_train_did_not_learn(tmp_path: Path) -> None:
    assert Run(tmp_path / "calibrated").assessment("calibrated") is None
    early = Run(tmp_path / "early").assessment("after")
    assert early == ("unknown", containing("no round was finished, so no"))
