from __future__ import annotations

from pathlib import Path

import pytest

from node.learning.privacy import guarantee
from orchestrator.report import render
from orchestrator.results.evaluation.privacy import METRICS, measured, privacy, statement
from orchestrator.results.history import History
from tests.orchestrator.drivers.sim.harness import simulate
from tests.orchestrator.example_run import Example

SCENARIO = """\
# What do shared features give away?
seed: 3
algorithm: {name: fedfeat, rounds: 2, epochs: 1}
data: {dataset: digits, partition: iid, samples_per_client: 40}
model: mlp
topology: {devices: 2}
"""


def scenario(**params: object) -> str:
    given = "".join(f", {name}: {value}" for name, value in params.items())
    return SCENARIO.replace("epochs: 1", f"epochs: 1{given}")


def test_without_clipping_there_is_no_guarantee(tmp_path: Path) -> None:
    done = simulate(tmp_path, scenario())
    said = done.summary["privacy"]
    assert "no noise is enough for features" in said["guarantee"]
    assert set(said["metrics"]) == set(METRICS)
    page = render(done.history())
    assert said["guarantee"] in page
    assert 'id="privacy"' in page


def test_clipping_makes_it_real_and_it_is_printed(tmp_path: Path) -> None:
    done = simulate(tmp_path, scenario(clip_norm=0.5, epsilon=1.5))
    given = guarantee("gaussian", 1.5, 1e-5, 0.5, rounds=2)
    assert given is not None
    said = done.summary["privacy"]["guarantee"]
    assert f"(ε {given.epsilon:.3g}, δ 1e-05) differentially private" in said
    assert f"(ε {given.total_epsilon:.3g}, δ 1e-05) over 2 rounds" in said
    assert "nothing is guaranteed of those" in said


def test_laplace_noise_has_no_delta(tmp_path: Path) -> None:
    done = simulate(tmp_path, scenario(clip_norm=0.5, epsilon=1.5, noise="laplace"))
    assert "(ε 1.5) differentially private" in done.summary["privacy"]["guarantee"]
    assert "(ε 3) over 2 rounds" in done.summary["privacy"]["guarantee"]


def test_without_noise(tmp_path: Path) -> None:
    done = simulate(tmp_path, scenario(noise="none"))
    assert "none, they are sent without noise" in done.summary["privacy"]["guarantee"]
    assert done.summary["privacy"]["metrics"] == {}


def test_who_shares_no_features_has_nothing_to_say(tmp_path: Path) -> None:
    done = simulate(tmp_path, scenario(retrain_epochs=0))
    assert "privacy" not in done.summary
    example = History.open(Example().build(tmp_path / "example"))
    assert statement(example) is None
    assert privacy(example) is None
    assert 'id="privacy"' not in render(example)


def test_metrics_are_means_over_the_clients(tmp_path: Path) -> None:
    history = simulate(tmp_path, scenario()).history()
    rounds = measured(history)
    assert sorted(rounds) == [1, 2]
    for name in METRICS:
        told = [row.value for row in history.metrics(name, "privacy") if row.round == 2]
        assert len(told) == 2
        assert rounds[2][name] == pytest.approx(sum(told) / 2)
