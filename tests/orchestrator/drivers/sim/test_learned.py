"""Runs that end in order and learn nothing."""

from __future__ import annotations

from pathlib import Path

from tests.orchestrator.drivers.sim.harness import Simulated, simulate
from tests.texts import containing

SCENARIO = """\
algorithm: {name: hierfavg, rounds: 3, kappa2: 1, learning_rate: 0.1}
data: {dataset: digits, samples_per_client: 60, evaluate_samples: 100}
model: mlp
topology: {edges: 2, devices_per_edge: 2}
links: {device-edge: {latency: 5ms}}
gathering: {deadline: 5s}
"""


def learned(run: Simulated) -> tuple[str, str]:
    found = next(check for check in run.summary["checks"] if check["name"] == "learned")
    return found["verdict"], found["detail"]


def test_a_healthy_run_passes(tmp_path: Path) -> None:
    run = simulate(tmp_path, SCENARIO)
    assert (run.code, learned(run)[0]) == (0, "pass")


def test_rounds_without_a_device_fail(tmp_path: Path) -> None:
    run = simulate(tmp_path, SCENARIO, "--set", "links.device-edge.loss=100%")
    assert run.code == 3
    assert learned(run) == (
        "fail",
        containing("answers: 3 of 3", "edge-0, 3 of 3", "edge-1"),
    )


def test_training_that_diverges_fails(tmp_path: Path) -> None:
    run = simulate(tmp_path, SCENARIO, "--set", "algorithm.learning_rate=1000000", "--set", "algorithm.epochs=20")
    assert run.code == 3
    verdict, detail = learned(run)
    assert verdict == "fail"
    assert "first at device-0-0 in round 1 (" in detail
    assert "device-0-0, device-0-1, device-1-0, device-1-1" in detail
    assert any(value is None for *_, name, value in run.record()["metric"] if name == "loss")  # NaN, as SQLite has it
