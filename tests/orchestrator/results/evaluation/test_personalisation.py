from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.record.writer import Record
from orchestrator.report import render
from orchestrator.results.evaluation.personalisation import (
    best_within,
    edge_rows,
    largest_drop,
    mean_accuracy,
    personalisation,
    personalises,
)
from orchestrator.results.history import History
from tests.orchestrator.drivers.sim.harness import simulate
from tests.orchestrator.example_run import Example, plan_of

SCENARIO = """\
# Is every edge served?
seed: 3
algorithm: {name: phe-fl, rounds: 3, epochs: 1}
data: {dataset: digits, partition: {labels-per-edge: D2}, evaluate_samples: 60}
model: mlp
topology: {edges: 2, devices_per_edge: 2}
"""


def test_the_mean_over_the_edges(tmp_path: Path) -> None:
    """edge-0 says 0.2 and 0.4, edge-1 0.6 of round 1 alone, which stands in round 2; devices do not count."""
    record = Record.create(tmp_path, json.dumps(plan_of(Example())), {})
    said = [("edge-0", 1, 0.2), ("edge-1", 1, 0.6), ("device-0-0", 1, 0.0), ("edge-0", 2, 0.4)]
    for node, round, value in said:
        record.metric(float(round), node, round, "own", "accuracy", value)
    record.close()
    assert mean_accuracy(History.open(tmp_path)) == {1: pytest.approx(0.4), 2: pytest.approx(0.5)}


def test_the_best_round_so_far() -> None:
    series = {1: 0.2, 2: 0.7, 3: 0.5, 12: 0.9}
    assert [best_within(series, n) for n in (1, 3, 11, 12)] == [0.2, 0.7, 0.7, 0.9]
    assert best_within(series, 0) is None


def test_the_largest_difference_within_ten_rounds() -> None:
    """From round 3 on, 0.8: rounds 3 to 12 hold 0.8 and 0.5; round 13, 0.1, is in the windows of rounds 4 to 13, with
    0.6 at most beside it. Rounds 1 and 2 are before."""
    series = {1: 0.0, 2: 0.1, 3: 0.8, 4: 0.6} | dict.fromkeys(range(5, 13), 0.5) | {13: 0.1}
    assert largest_drop(series, 0.75) == pytest.approx(0.5)
    assert largest_drop(series, 0.0) == pytest.approx(0.8)  # rounds 1 to 10: the rise from 0 to 0.8 counts
    assert largest_drop(series, 0.9) is None
    assert largest_drop({7: 0.95}, 0.9) == 0.0


def test_a_run_under_sim(tmp_path: Path) -> None:
    done = simulate(tmp_path, SCENARIO)
    history = done.history()
    assert personalises(history)
    means = mean_accuracy(history)
    own = {row.node: row.value for row in history.metrics("accuracy", "own") if row.round == 3}
    assert sorted(means) == [1, 2, 3]
    assert means[3] == pytest.approx(sum(own.values()) / 2)
    assert done.summary["personalisation"]["within"] == {"3": max(means.values())}
    assert done.summary["personalisation"]["drop"]["0%"] == pytest.approx(max(means.values()) - min(means.values()))
    rows = edge_rows(history)
    assert [row.edge for row in rows] == ["edge-0", "edge-1"]
    for row in rows:
        assert row.alpha is not None
        assert row.edge_accuracy is not None
        assert row.cloud_accuracy is not None
        assert row.alpha == pytest.approx(row.edge_accuracy / (row.edge_accuracy + row.cloud_accuracy))
    page = render(history)
    assert '<th scope="col" class="number">Acc3</th>' in page
    assert "Drop0</th>" in page


@pytest.mark.parametrize("algorithm", ["edgecloud", "onlyedge"])
def test_baselines_are_scored_on_the_same_samples(tmp_path: Path, algorithm: str) -> None:
    text = SCENARIO.replace("phe-fl", algorithm).replace("evaluate_samples: 60", "personalisation: 15%")
    done = simulate(tmp_path, text)
    ours = simulate(tmp_path, SCENARIO.replace("evaluate_samples: 60", "test: proportional"))
    assert set(done.summary["personalisation"]["within"]) == {"3"}
    with_ours, with_theirs = (run.history().effective["data"]["personalisation"] for run in (ours, done))
    assert with_ours == with_theirs == "15%"
    assert done.history().plan["data"]["shards_sha256"] == ours.history().plan["data"]["shards_sha256"]


def test_a_run_that_sets_nothing_apart_is_not_about_it(tmp_path: Path) -> None:
    history = History.open(Example().build(tmp_path / "run"))
    assert not personalises(history)
    assert personalisation(history) is None
    assert 'id="personalisation"' not in render(history)


def test_an_algorithm_that_personalises_needs_samples_for_it(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"data.personalisation: 0% of edge-0's own .* no sample.*raise it"):
        simulate(tmp_path, SCENARIO.replace("evaluate_samples: 60", "personalisation: 0%"))
