"""Populations under the simulation: whole runs, and what the record says of the clients."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from node.algorithms.common import average
from orchestrator.cli.main import cli
from orchestrator.population.availability import FromTrace
from orchestrator.population.population import client_number
from orchestrator.population.table import AvailabilityTable
from orchestrator.record.rows import Event
from orchestrator.results.traffic import volumes
from scenarios.traces.convert import from_fedscale, to_csv
from tests.orchestrator.drivers.sim.harness import Simulated, simulate
from tests.texts import containing

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
    return simulate(tmp_path_factory.mktemp("plain"), SCENARIO)


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return simulate(tmp_path_factory.mktemp("varied"), VARIED)


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
    with plain.history() as history:
        rows = volumes.traffic(history)
    assert {row[:2] for row in rows} == {("cloud", "population"), ("population", "cloud")}
    (sent,) = (row for row in rows if row[:4] == ("population", "cloud", "update", "sent"))
    assert sent.bytes == sum(each.data["sent"] for each in parts(plain))


@pytest.mark.slow
def test_two_workers_of_a_fresh_process_give_the_same_record(tmp_path: Path, varied: Simulated) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(VARIED)
    words = ["up", str(file), "--driver", "sim", "--runs", str(tmp_path), "--workers", "2", "--json"]
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


def asked(run: Simulated, round: int) -> list[str]:
    return [each.data["client"] for each in parts(run) if each.round == round]


def test_a_continued_run_selects_as_if_it_had_not_ended(
    tmp_path: Path, varied: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("node.algorithms.fedavg.average", fails_in_round(2, average))
        failed = simulate(tmp_path, VARIED)
    assert (failed.code, failed.summary["rounds"]) == (1, 1)
    words = ["resume", failed.directory.name, "--runs", str(tmp_path / "runs"), "--json"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 3, done.output  # the record has the end of the cloud that nobody planned
    assert failed.history().rounds_done() == 3
    assert asked(failed, 2)[-9:] == asked(varied, 2)
    assert asked(failed, 3) == asked(varied, 3)


def test_a_run_with_a_damaged_checkpoint_of_its_population_is_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("node.algorithms.fedavg.average", fails_in_round(2, average))
        failed = simulate(tmp_path, SCENARIO)
    checkpoint = failed.directory / "checkpoints" / "population" / "population.checkpoint"
    checkpoint.write_bytes(b"damaged")
    done = CliRunner().invoke(cli, ["resume", failed.directory.name, "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 1
    assert f"cannot be continued: {checkpoint}: not" in " ".join(done.output.split())


def fails_in_round(round: int, average: Any) -> Any:
    async def broken(role: Any, updates: Any, w: Any) -> Any:
        if updates[0].round == round:
            raise ArithmeticError("an odd number")
        return await average(role, updates, w)

    return broken


def test_a_cloud_that_crashes_selects_again(tmp_path: Path) -> None:
    faults = "faults: [{round: 2, node: cloud, action: crash, for: 1s}]\n"
    run = simulate(tmp_path, SCENARIO + faults)
    assert (run.code, run.summary["rounds"]) == (0, 3), run.errors
    assert outcomes(run, 1) == outcomes(run, 3) == {"counted": 6}
    assert outcomes(run, 2)["counted"] == 6


def test_clients_that_go_away_are_lost_and_the_round_continues(tmp_path: Path) -> None:
    # Clients take 3 to 6 s for their samples. Those that behave as devices a and b go away after 0.5 s.
    stays = ("a,0,0.5", "a,90,600", "c,0,600", "b,0,0.5", "b,90,600", "d,0,600")
    (tmp_path / "stays.csv").write_text("\n".join(("device,from,until", *stays)))
    clients = "clients: {availability: {trace: stays.csv}, speed: {uniform: {low: 0.00005, high: 0.0001}}}\n"
    run = simulate(tmp_path, SCENARIO + clients)
    assert run.code == 0, run.errors
    first = outcomes(run, 1)
    assert first["away"] > 0
    assert first["counted"] > 0
    assert first["away"] + first["counted"] == 6
    gone = [each.data["seconds"] for each in parts(run) if each.data["outcome"] == "away" and each.round == 1]
    assert gone == pytest.approx([0.5] * len(gone))


def test_the_cloud_waits_while_no_one_is_online(tmp_path: Path) -> None:
    (tmp_path / "stays.csv").write_text("device,from,until\na,3600,7200\n")
    run = simulate(tmp_path, SCENARIO + "clients: {availability: {trace: stays.csv}}\n")
    assert run.code == 0, run.errors
    assert min(each.data["began"] for each in parts(run)) == 3600.0


@pytest.mark.slow
def test_clients_of_fedscale_come_by_day_and_half_of_them_never(tmp_path: Path) -> None:
    """In FedScale's form: odd clients are there from 08:00 to 10:00 of a day of 86,400 s, even ones never. By its
    client_metadata.is_active nobody is there from 36,000 s to 86,400 + 28,800 = 115,200 s."""
    traces = {
        client: {"active": [28800] * (client % 2), "inactive": [36000] * (client % 2), "finish_time": 86400}
        for client in range(1, 201)
    }
    (tmp_path / "stays.csv").write_text(to_csv(from_fedscale(pickle.dumps(traces))))
    clients = "clients: {availability: {trace: stays.csv}, speed: {uniform: {low: 0.0000006, high: 0.0000007}}}\n"
    scenario = SCENARIO.replace("rounds: 3", "rounds: 16") + clients + "gathering: {deadline: 3h}\n"
    run = simulate(tmp_path, scenario)
    assert run.code == 0, run.errors
    began = {each.data["began"] for each in parts(run)}
    assert min(began) == 28800.0
    assert max(began) > 115200.0
    assert not [t for t in began if 36001.0 < t < 115200.0]
    assert len({t for t in began if t < 36001.0}) > 3
    by_number = {check["name"]: check["verdict"] for check in run.summary["checks"]}
    assert by_number["clients available"] == "pass"
    trace = FromTrace(500, 3, AvailabilityTable.read((tmp_path / "stays.csv").read_text(), "stays.csv"))
    assert trace.there(30000.0).mean() == pytest.approx(0.5, abs=0.07)  # 500 draws: a standard deviation of 0.022
    assert {client_number(each.data["client"]) for each in parts(run)} <= set(np.flatnonzero(trace.there(30000.0)))


def test_a_trace_that_starts_after_the_run_is_no_pass(tmp_path: Path) -> None:
    (tmp_path / "stays.csv").write_text("device,from,until\na,36000,72000\n")
    run = simulate(tmp_path, SCENARIO + "clients: {availability: {trace: stays.csv}}\nstop: {after: 1h}\n")
    assert run.summary["verdict"] == "unknown"
    assert [check["detail"] for check in run.summary["checks"] if check["name"] == "clients available"] == [
        containing("no row of stays.csv", "at 10 h")
    ]


def test_a_week_without_any_client_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "stays.csv").write_text("device,from,until\na,900000,900001\n")
    run = simulate(tmp_path, SCENARIO + "clients: {availability: {trace: stays.csv}}\n")
    assert run.code == 1
    assert "available for 7 days: see clients.availability" in run.summary["error"]


def test_a_bug_of_a_client_ends_the_run_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise ArithmeticError("an odd number")

    monkeypatch.setattr("node.algorithms.fedavg.Client.train", broken)
    run = simulate(tmp_path, SCENARIO)
    assert run.code == 1
    assert "ArithmeticError: an odd number" in run.summary["error"]
    assert "device-" in run.summary["error"]


def test_a_client_that_is_selected_again_has_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(PLUGIN)
    scenario = SCENARIO.replace("fedavg", "counting").replace("population: 500", "population: 6")
    run = simulate(tmp_path, "plugins: [counting.py]\n" + scenario)
    assert run.code == 0, run.errors
    told = [(each.round, each.data["times"]) for each in run.history().events("counted")]
    assert sorted(told) == [(round, round) for round in (1, 2, 3) for _ in range(6)]


PLUGIN = """\
import edgebed
from node.algorithms import fedavg


class Client(fedavg.Client):
    \"\"\"Counts its rounds.\"\"\"

    async def answer(self, w, t):
        times = 1 + (self.restored.fields["times"] if self.restored else 0)
        self.note("counted", round=t, times=times)
        await self.checkpoint(t, {}, times=times)
        await super().answer(w, t)


ROLES = {"cloud": fedavg.Cloud, "device": Client}
PLUGIN = edgebed.Plugin(algorithms=[
    edgebed.Algorithm("counting", devices="optional", flat=True, population=True)
])
"""


@pytest.mark.parametrize("algorithm", ["fedprox", "fednova"])
def test_averaging_algorithms_run_unchanged(tmp_path: Path, algorithm: str) -> None:
    run = simulate(tmp_path, SCENARIO.replace("fedavg", algorithm))
    assert run.code == 0, run.errors
    assert outcomes(run) == {"counted": 18}


def test_scaffold_with_a_single_client_is_fedavg(tmp_path: Path) -> None:
    """Its client's control variate is then the server's, so nothing is corrected, if the client has it back."""
    single = SCENARIO.replace("population: 500, selected: 6", "population: 1, selected: 1")
    scaffold = "plugins: [edgebed.baselines.scaffold]\n" + single.replace("fedavg", "scaffold")
    runs = [simulate(tmp_path, text) for text in (single, scaffold)]
    one, other = ([metric.value for metric in run.history().metrics("loss", "global")] for run in runs)
    assert len(one) == 3
    assert other == pytest.approx(one, rel=1e-4)
    assert (runs[1].directory / "checkpoints" / "population" / "device-0.checkpoint").exists()
