"""Metrics of classes, from the nodes to the summary, the report and what is expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.report import figures
from orchestrator.results.means import mean
from orchestrator.results.printed import print_summary
from tests.orchestrator.consoles import printed
from tests.orchestrator.drivers.sim.harness import simulate

SCENARIO = """\
name: classes
{algorithm}
data: {{dataset: digits, partition: {{dirichlet: 0.3}}, metrics: [macro_f1, balanced_accuracy, recall]}}
model: mlp
topology: {{devices: 3}}
expect: {{metrics: [{{name: macro_f1, at_least: {least}}}, {{name: recall_3, scope: own, at_least: 0%}}]}}
"""
FEDAVG = "algorithm: {name: fedavg, rounds: 2}"
OWN_MODELS = "plugins: [edgebed.baselines.lgfedavg]\nalgorithm: {name: lgfedavg, rounds: 2}"


def test_a_run_reports_them_and_compares_them_with_bounds(tmp_path: Path) -> None:
    done = simulate(tmp_path, SCENARIO.format(algorithm=FEDAVG, least="0%"))
    found = done.summary["metrics"]
    recalls = [found[f"recall_{label}"] for label in range(10)]
    assert found["balanced_accuracy"] == pytest.approx(mean(recalls))
    assert 0 < found["macro_f1"] < 1
    expected = next(check for check in done.summary["checks"] if check["name"] == "result as expected")
    assert f"global macro_f1 {found['macro_f1']:.4g}, expected 0 at least" in expected["detail"]
    said = printed(200, lambda console: print_summary(done.summary, done.directory, console))
    assert f"lowest {min(recalls):.1%} (class " in said
    assert "recall_3" not in said.replace("own recall_3", "")
    drawn = figures.learning(done.history())["recalls"]
    assert [mark["name"] for mark in drawn["marks"]] == [f"class {label}" for label in range(10)]
    assert simulate(tmp_path, SCENARIO.format(algorithm=FEDAVG, least="100%")).code == 3


def test_of_clients_with_models_of_their_own_the_cloud_reports_the_mean(tmp_path: Path) -> None:
    done = simulate(tmp_path, SCENARIO.format(algorithm=OWN_MODELS, least="0%"))
    history = done.history()
    devices = [history.metrics("macro_f1", "global", node=f"device-{k}")[-1].value for k in range(3)]
    assert done.summary["metrics"]["macro_f1"] == pytest.approx(mean(devices))
