"""Silos without a cloud, from a scenario to its report, under the driver `sim`."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.report import render
from orchestrator.scenario.reading import parse
from tests.orchestrator.drivers.sim.harness import simulate

SCENARIO = """\
# Do silos find one another?
seed: 3
algorithm: {name: feelpgen-plus, rounds: 3, profile: fast, learning_rate: 0.02, features: 320}
data: {dataset: digits, partition: {dirichlet: 0.3}, samples_per_client: 40, evaluate_samples: 60}
model: mlp
topology: {cloud: false, edges: 3, devices_per_edge: 2}
hardware: {device: raspberry-pi-5, device-2-0: raspberry-pi-3}
links:
  edge-edge: {latency: 10ms, rate: 50mbit}
faults:
  - {at: 300ms, between: [edge-0, edge-1], action: partition, for: 200ms}
"""


@pytest.mark.slow
def test_a_run_without_a_cloud(tmp_path: Path) -> None:
    done = simulate(tmp_path, SCENARIO)
    assert (done.summary["rounds"], done.summary["ended"]) == (3, "rounds")
    assert set(done.summary["accuracy"]["edge"]) == {"edge-0", "edge-1", "edge-2"}
    assert {"features", "request", "silo", "model", "update"} <= set(done.summary["messages"])
    assert done.summary["messages"]["features"] == 3 * 3 * 2
    history = done.history()
    assert {event.node for event in history.events("peers")} == {"edge-0", "edge-1", "edge-2"}
    page = render(history)
    assert "Who learned from whom" in page
    assert "no guarantee holds" in page
    assert simulate(tmp_path, SCENARIO, "--workers", "2").record() == done.record()


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        ("cloud: true", "feelpgen-plus has no use"),
        ("cloud: false, mesh: false", r"edges of feelpgen-plus talk.*another"),
    ],
)
def test_a_topology_that_does_not_suit_is_refused(topology: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        parse(SCENARIO.replace("cloud: false", topology), "scenario.yaml")


def test_edges_talk_by_default(tmp_path: Path) -> None:
    silent = SCENARIO.replace("links:\n  edge-edge: {latency: 10ms, rate: 50mbit}\n", "")
    done = simulate(tmp_path, silent, "--set", "algorithm.rounds=1")
    assert done.summary["messages"]["features"] == 6
