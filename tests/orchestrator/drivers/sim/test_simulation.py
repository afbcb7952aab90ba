"""Whole runs under the `sim` driver: the same command, record and report as with real nodes."""

from __future__ import annotations

import random
import re
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from node.runtime.clock import VirtualLoop
from orchestrator.cli.main import cli
from orchestrator.drivers.sim import workers
from orchestrator.errors import MistakeError
from orchestrator.scenario.reading import load
from tests.orchestrator.drivers.sim.harness import Simulated, simulate
from tests.shipped import SCENARIOS

TWICE = ("dffke-htfe10", "phefl-d2", "phefl-d3")  # shortened, dffke-htfe5, phefl-d1 and phefl-d4 are the same
SIMULATED = [path for path in SCENARIOS if load(path).algorithm is not None and path.stem not in TWICE]  # no programs

SMALL = """\
# Does a small hierarchy learn the digits?
name: small
seed: 7
algorithm: {name: hierfavg, rounds: 6, kappa1: 4, kappa2: 1, learning_rate: 0.2}
data: {dataset: digits, partition: iid}
model: mlp
topology: {edges: 2, devices_per_edge: 2, cloud: true}
hardware: {device: {speed: 0.01}}
links:
  device-edge: {latency: 2ms, rate: 50mbit}
  edge-cloud: {latency: 10ms, jitter: 3ms, loss: 1%, rate: 20mbit}
"""
FAULTS = """\
faults:
  - {round: 2, node: device-0-0, action: crash, for: 2s}
  - {round: 2, node: device-1-1, action: pause, for: 1s}
  - {round: 3, between: [edge-0, cloud], action: partition, for: 12s}
  - {round: 4, node: edge-1, action: degrade, latency: 60ms, for: 1s}
  - {round: 4, node: device-1-0, action: slow, factor: 5}
  - {every_round: 30%, of: devices, action: disconnect}
  - {round: 3, node: device-0-1, action: leave}
"""


DIGITS = ("data.dataset=digits",)
FEW = (*DIGITS, "data.samples_per_client=40")
FEW_EDGES = ("topology.edges=4", "data.evaluate_samples=200")
HETEROGENEOUS = (
    "data.dataset=npz:{colours}",
    "topology.edges=2",
    "data.partition=iid",
    "data.samples_per_client=10",
    "model.image_size=32",
    "algorithm.profile=fast",
    "algorithm.rounds=1",
    "algorithm.decoder_epochs=1",
    "algorithm.exchange_epochs=1",
    "algorithm.first_epochs=1",
)
SHORTER = {
    "asynchrony": FEW,
    "boards-5g": (*DIGITS, "topology.devices=2", "data.samples_per_client=100", "data.evaluate_samples=100"),
    "clients": ("data.evaluate_samples=100",),
    "compressed": FEW,
    "dropout": (*DIGITS, "topology.devices_per_edge=3", "data.evaluate_samples=200"),
    "dffke-small": (*DIGITS, "data.samples_per_client=60", "algorithm.rounds=1"),
    "dffke-htfe1": HETEROGENEOUS,
    "dffke-htfe5": (*HETEROGENEOUS, "model.name=htfe-2"),
    "fedala": FEW,
    "fededs-ablation": (*FEW, *FEW_EDGES, "algorithm.encryptor_epochs=10", "algorithm.rounds=2"),
    "fededs-near-edges": (*FEW, *FEW_EDGES, "algorithm.rounds=2"),
    "fedfeat-shards": ("data.dataset=npz:{greys}", "data.samples_per_client=40", "algorithm.rounds=2"),
    "fedgen": (*FEW, "data.evaluate_samples=100", "algorithm.rounds=8", "algorithm.steps=5"),
    "feelpgen-bytes": (*FEW, "algorithm.rounds=2"),
    "feelpgen-dropout": (*FEW, "data.evaluate_samples=100", "topology.devices_per_edge=2", "algorithm.rounds=9"),
    "feelpgen-stragglers": (*FEW, "data.evaluate_samples=100", "algorithm.rounds=2"),
    "lora-over-lte": ("algorithm.rounds=6",),
    "partition": ("data.evaluate_samples=100", "data.samples_per_client=100"),
    "masked-sum": FEW,
    "scaffold": FEW,
    "semi-decentralized": (*FEW, "algorithm.rounds=4"),
    "thousand": ("topology.edges=2", "topology.devices_per_edge=20"),
    "heterogeneous": (*FEW, "data.partition=iid", "algorithm.rounds=4"),
    **{f"phefl-d{pattern}": (*DIGITS, "algorithm.rounds=2", "topology.devices_per_edge=3") for pattern in (1, 4)},
}
"""What of the scenarios that train for minutes is made smaller; topology, links, faults and algorithm are their own."""


@pytest.fixture(scope="session")
def noise(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Data sets of random pictures, for scenarios whose networks need larger ones than digits."""
    random, labels, found = np.random.default_rng(1), np.arange(1000) % 10, {}
    for name, shape in (("greys", (28, 28)), ("colours", (32, 32, 3))):
        found[name] = tmp_path_factory.mktemp("noise") / f"{name}.npz"
        train, test = (random.integers(0, 256, (count, *shape), dtype=np.uint8) for count in (1000, 50))
        np.savez(found[name], x_train=train, y_train=labels, x_test=test, y_test=labels[:50])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", SIMULATED, ids=lambda path: path.stem)
def test_every_scenario_that_is_shipped(
    tmp_path: Path, path: Path, noise: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = [f"--set={each.format(**noise)}" for each in SHORTER.get(path.stem, ())]
    learns_nothing = any("{" in each for each in SHORTER.get(path.stem, ()))  # from noise
    if learns_nothing:
        monkeypatch.setenv("EDGEBED_CACHE", str(noise["greys"].parent / "cache"))  # nobody else uses these data sets
    result = simulate(tmp_path, path, *changes)
    assert result.code == 0, result.errors
    summary = result.summary
    assert (summary["driver"], summary["links"]) == ("sim", "model")
    doubts = {check["name"] for check in summary["checks"] if check["verdict"] not in ("pass", "modelled")}
    assert doubts == ({"learned"} if learns_nothing else set()), summary["checks"]
    assert summary["rounds"] > 0
    assert (result.directory / "report.html").exists()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return simulate(tmp_path_factory.mktemp("small"), SMALL)


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    """With every fault, on one worker."""
    return simulate(tmp_path_factory.mktemp("disturbed"), SMALL + FAULTS)


def test_both_clocks(small: Simulated) -> None:
    result = small
    assert result.summary["seconds"] > 1  # six rounds of 4 batches at a hundredth of a core's speed
    assert result.summary["wall_seconds"] not in (0, result.summary["seconds"])
    line = next(each for each in result.errors.splitlines() if "round 3" in each)
    stamp = re.match(r"\[ *([0-9.]+) s virtual \( *([0-9.]+) s\)", line)
    assert stamp is not None, line
    virtual, host = map(float, stamp.groups())
    assert virtual > 0
    assert host >= 0


def test_the_same_record_whatever_the_number_of_workers(tmp_path: Path, disturbed: Simulated) -> None:
    one, four = disturbed, simulate(tmp_path, SMALL + FAULTS, "--workers", "4")
    assert one.record() == four.record()
    assert one.record()["metric"]
    plans = [(each.directory / "plan.json").read_bytes() for each in (one, four)]
    assert plans[0] == plans[1]


def test_the_same_record_on_a_host_that_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disturbed: Simulated
) -> None:
    """Workers take their steps when they like, and what comes from outside wakes the loop at any moment."""
    chance, serve, run_once = random.Random(1), workers.read, VirtualLoop._run_once  # type: ignore[attr-defined]

    def slow(*given: Any, **named: Any) -> Any:
        time.sleep(chance.random() * 0.01)
        return serve(*given, **named)

    def woken(loop: VirtualLoop) -> None:
        if chance.random() < 0.5:
            loop.call_soon_threadsafe(lambda: None)
        run_once(loop)

    monkeypatch.setattr(workers, "read", slow)
    monkeypatch.setattr(VirtualLoop, "_run_once", woken)
    assert simulate(tmp_path, SMALL + FAULTS, "--workers", "3").record() == disturbed.record()


def test_another_seed_gives_another_record(tmp_path: Path, small: Simulated) -> None:
    assert simulate(tmp_path, SMALL, "--set", "seed=8").record()["metric"] != small.record()["metric"]


def test_every_fault_takes_effect(disturbed: Simulated) -> None:
    result = disturbed
    assert result.code == 0, (result.errors, result.summary["checks"])
    happened = {fault["action"] for fault in result.summary["faults"] if fault["at"] is not None}
    assert happened == {"crash", "pause", "partition", "degrade", "slow", "disconnect", "leave"}
    with result.history() as history:
        lost = {(event.node, event.data["peer"]) for event in history.events("lost")}
        assert {("cloud", "edge-0"), ("edge-0", "cloud")} <= lost  # 12 s is more than a peer's silence may last
        states = [state.state for state in history.states() if state.node == "device-0-0"]
    life = ["starting", "registered", "running"]
    assert states == [*life, "crashed", "restarting", *life, "done"]


def test_slower_links_make_longer_rounds_of_the_same_outcome(tmp_path: Path, small: Simulated) -> None:
    near, far = small, simulate(tmp_path, SMALL, "--set", "links.edge-cloud.latency=200ms")
    # 60 kB are 41 packets: windows of 10, 20 and 11, so two round trips more than the way itself, down and up.
    assert durations(far) - durations(near) > 2 * 2.5 * 0.38
    accuracies = [[row[4:] for row in each.record()["metric"] if row[3] == "global"] for each in (near, far)]
    assert accuracies[0] == accuracies[1]


def durations(result: Simulated) -> float:
    """Median round of the cloud, s."""
    with result.history() as history:
        return statistics.median(
            each.end - each.start for each in history.rounds() if each.node == "cloud" and each.end is not None
        )


def test_a_coordinator_continues_from_its_checkpoint(tmp_path: Path) -> None:
    faults = "faults: [{round: 4, node: cloud, action: crash, for: 1s}]\n"
    result = simulate(tmp_path, SMALL + faults)
    assert (result.code, result.summary["rounds"]) == (0, 6), result.errors
    with result.history() as history:
        assert [event.data or event.round for event in history.events("resumed")] == [3]


def test_a_bug_of_a_node_ends_the_run_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise ArithmeticError("an odd number")

    monkeypatch.setattr("node.algorithms.fedavg.average", broken)
    result = simulate(tmp_path, SMALL)
    assert result.code == 1
    assert result.summary["error"] == "cloud failed: ArithmeticError: an odd number: see `logs cloud`"
    assert "ArithmeticError" in (result.directory / "logs" / "cloud.log").read_text()


def test_a_node_that_cannot_be_made_ends_the_run_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'mine'")

    monkeypatch.setattr("orchestrator.drivers.sim.nodes.load_role", broken)
    result = simulate(tmp_path, SMALL)
    assert result.code == 1
    reason = "exit code 1; its log ends with: ModuleNotFoundError: No module named 'mine'"
    assert f"ended ({reason}) and is not restarted" in result.summary["error"]
    assert result.summary["seconds"] < 10  # virtual, and no node was waited for


def test_nodes_that_wait_for_ever_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(*_: object, **__: object) -> None:
        import asyncio

        await asyncio.Event().wait()

    monkeypatch.setattr("node.algorithms.fedavg.average", wait)
    result = simulate(tmp_path, SMALL)
    assert result.code == 1
    assert "the nodes wait for ever" in result.summary["error"]
    assert "cloud" in result.summary["error"]


def test_workers_are_for_simulations(tmp_path: Path) -> None:
    with pytest.raises(MistakeError, match="workers: only for the driver sim"):
        simulate(tmp_path, SMALL, "--driver", "namespaces", "--workers", "2")


def test_there_is_nothing_to_calibrate(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(SMALL)
    done = CliRunner().invoke(cli, ["calibrate", str(path), "--set", "driver=sim"])
    assert done.exit_code == 2
    assert "a simulation computes its links" in done.stderr


def test_what_a_path_has_in_brackets_is_not_taken_for_a_style(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(SMALL.replace("rounds: 6", "rounds: 1"))
    runs = tmp_path / "r[/x]"
    done = CliRunner().invoke(cli, ["up", str(path), "--driver", "sim", "--runs", str(runs)], env={"COLUMNS": "300"})
    assert done.exit_code == 0, done.exception
    assert f"{runs}/small-" in done.stdout
