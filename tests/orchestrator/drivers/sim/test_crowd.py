"""Populations under the simulation: whole runs, and what the record says of the clients."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from orchestrator.results.rows import Event
from tests.orchestrator.drivers.sim.harness import Simulated, simulate

SCENARIO = """\
name: crowd
seed: 3
algorithm: {name: fedavg, rounds: 3, learning_rate: 0.1, batch_size: 10}
data: {dataset: digits, partition: {dirichlet: 0.5}, samples_per_client: 20}
model: mlp
topology: {population: 500, selected: 6}
"""

VARIED = (
    SCENARIO
    + """\
clients:
  selection: oort
  over: 50%
  hardware: {phone: 50%, raspberry-pi-3: 50%}
  links: {wifi: 50%, 3g: 50%}
"""
)


def parts(run: Simulated) -> list[Event]:
    return run.history().events("client")


def outcomes(run: Simulated, round: int | None = None) -> Counter[str]:
    return Counter(each.data["outcome"] for each in parts(run) if round in (None, each.round))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return simulate(tmp_path_factory.mktemp("plain"), SCENARIO, "--workers", "1")


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return simulate(tmp_path_factory.mktemp("varied"), VARIED, "--workers", "1")


def test_a_population_learns_below_a_cloud(plain: Simulated) -> None:
    assert plain.code == 0, plain.errors
    assert plain.summary["nodes"] == 2  # cloud and population, whatever takes part
    assert plain.summary["rounds"] == 3
    assert plain.summary["accuracy"]["global"] > 0.3  # guessing reaches 0.1


def test_the_record_names_each_client_of_each_round(plain: Simulated) -> None:
    found = parts(plain)
    assert Counter(each.round for each in found) == {1: 6, 2: 6, 3: 6}
    assert {each.node for each in found} == {"population"}
    numbers = [int(each.data["client"].removeprefix("device-")) for each in found]
    assert all(0 <= number < 500 for number in numbers)
    assert len(set(numbers[:6])) == 6
    assert outcomes(plain) == {"counted": 18}
    assert {each.data["samples"] for each in found} == {20}


def test_messages_of_clients_are_those_of_the_population(plain: Simulated) -> None:
    messages = plain.summary["messages"]
    assert messages["model"] == messages["update"] == 18
    rows = plain.record()["traffic"]
    assert {(node, peer) for _, node, peer, *_ in rows} == {("cloud", "population"), ("population", "cloud")}
    (sent,) = (row for row in rows if row[1:5] == ("population", "cloud", "update", "sent"))
    assert sent[6] == sum(each.data["sent"] for each in parts(plain))


def test_an_equal_seed_gives_an_equal_record_with_any_number_of_workers(
    tmp_path: Path, plain: Simulated, varied: Simulated
) -> None:
    assert simulate(tmp_path, SCENARIO, "--workers", "2").record() == plain.record()
    assert simulate(tmp_path, VARIED, "--workers", "2").record() == varied.record()


@pytest.mark.slow
def test_a_fresh_process_gives_the_same_record(tmp_path: Path, varied: Simulated) -> None:
    (tmp_path / "scenario.yaml").write_text(VARIED)
    words = ["up", str(tmp_path / "scenario.yaml"), "--driver", "sim", "--runs", str(tmp_path), "--json"]
    command = [sys.executable, "-m", "orchestrator", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    summary: dict[str, Any] = json.loads(done.stdout)
    assert Simulated(0, summary, "").record() == varied.record()


def test_a_round_ends_when_enough_clients_have_answered(varied: Simulated) -> None:
    for round in (1, 2, 3):
        found = outcomes(varied, round)
        assert found["counted"] == 6
        assert found.total() == 9  # 50% more were asked
    counted = [each for each in parts(varied) if each.round == 1 and each.data["outcome"] == "counted"]
    others = [each for each in parts(varied) if each.round == 1 and each.data["outcome"] != "counted"]
    assert max(each.data["seconds"] for each in counted) <= min(each.data["seconds"] for each in others)


def test_clients_differ_in_speed_and_link(varied: Simulated) -> None:
    found = [each.data for each in parts(varied)]
    assert {(each["hardware"], each["speed"]) for each in found} == {("phone", 0.28), ("raspberry-pi-3", 0.05)}
    assert {each["link"] for each in found} == {"wifi", "3g"}


@pytest.mark.parametrize("algorithm", ["fedprox", "fednova"])
def test_averaging_algorithms_run_unchanged(tmp_path: Path, algorithm: str) -> None:
    run = simulate(tmp_path, SCENARIO.replace("fedavg", algorithm))
    assert run.code == 0, run.errors
    assert outcomes(run) == {"counted": 18}
