"""Files of single clients in a whole run: hardware, links and availability, and the run continued from its copies."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from node.algorithms.common import average
from orchestrator.cli.main import cli
from tests.orchestrator.drivers.sim.harness import simulate
from tests.orchestrator.drivers.sim.test_crowd import fails_in_round

SCENARIO = """\
algorithm: {name: fedavg, rounds: 4, learning_rate: 0.1}
data: {dataset: digits, samples_per_client: 50}
model: mlp
topology: {devices: 3}
timeouts: {beat: 500ms, lost_after: 2s}
clients: {file: clients.csv, availability: {trace: stays.csv}}
stop: {after: 1h}
"""
CLIENTS = "node,speed,rate_up_kbit\ndevice-0,0.5,50\ndevice-1,0.5,\n"
STAYS = "node,from,until,period\ndevice-0,0,3600,3600\ndevice-2,,,3600\n"


def written(folder: Path) -> Path:
    (folder / "clients.csv").write_text(CLIENTS)
    (folder / "stays.csv").write_text(STAYS)
    return folder


def test_clients_have_their_own_hardware_links_and_absences(tmp_path: Path) -> None:
    run = simulate(written(tmp_path), SCENARIO)
    assert run.code == 0, run.errors
    history = run.history()
    assert {name: node["hardware"]["speed"] for name, node in history.nodes.items()} == {
        "cloud": None,
        "device-0": 0.5,
        "device-1": 0.5,
        "device-2": None,
    }
    rates = {(link["source"], link["target"]): link["profile"]["rate"] for link in history.plan["links"]}
    assert rates.pop(("device-0", "cloud")) == "50kbit"
    assert set(rates.values()) == {"1gbit"}  # of a lan
    # 60 kB at 50 kbit/s take 9.6 s or more, and the deadline follows from the slowest link.
    assert all(
        each.end is not None and each.end - each.start > 9.6 for each in history.rounds() if each.node == "cloud"
    )
    assert [(span.action, span.target) for span in history.faults()] == [("disconnect", "device-2")]
    verdicts = {check["name"]: check["verdict"] for check in run.summary["checks"]}
    assert (verdicts["faults took effect"], verdicts["clients available"]) == ("pass", "pass")


def test_a_run_is_continued_from_the_copies_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("node.algorithms.fedavg.average", fails_in_round(2, average))
        failed = simulate(written(tmp_path), SCENARIO)
    assert (failed.code, failed.summary["rounds"]) == (1, 1)
    (tmp_path / "clients.csv").write_text("node,speed\ndevice-0,0.1\n")
    (tmp_path / "stays.csv").unlink()
    done = CliRunner().invoke(cli, ["resume", failed.directory.name, "--runs", str(tmp_path / "runs"), "--json"])
    assert done.exit_code == 3, done.output  # the record has the end of the cloud that nobody planned
    assert failed.history().rounds_done() == 4
