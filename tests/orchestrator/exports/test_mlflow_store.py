"""Runs in MLflow: read back by MLflow's client, they are the scalars, settings and files of the run."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import PlaceError
from orchestrator.exports.base import AlreadyThereError
from orchestrator.exports.mlflow_store import LONGEST_KEY, LONGEST_PARAM, MlflowStore
from orchestrator.exports.scalars import epoch, scalars
from orchestrator.record.writer import Record
from orchestrator.report import write_report
from orchestrator.results.history import History
from orchestrator.results.summary import summary
from tests.orchestrator.example_run import SCENARIO, Example
from tests.orchestrator.exports.mlflow_stores import NewStore, client, runs_in

pytestmark = pytest.mark.slow  # MLflow takes seconds to be imported, and to make a store

QUESTION = SCENARIO.splitlines()[0].removeprefix("# ")


def written(path: Path, folder: Path) -> None:
    with History.open(path) as history:
        MlflowStore(str(folder)).write(history)


def test_a_run_is_read_back(tmp_path: Path, new_store: NewStore) -> None:
    folder = new_store(tmp_path / "out")
    path = Example(rounds=3).build(tmp_path / "dropout-1")
    with History.open(path) as history:
        write_report(history, path / "report.html")
        written(path, folder)
        given, began, said, effective = scalars(history), epoch(history), summary(history), history.effective
    (run,) = runs_in(folder, "dropout")
    assert (run.info.run_name, run.info.status) == ("dropout-1", "FINISHED")
    assert run.info.start_time == began * 1000
    assert run.info.end_time == pytest.approx((began + said["seconds"]) * 1000, abs=1)
    assert run.data.tags["edgebed.verdict"] == said["verdict"]
    assert (run.data.tags["edgebed.ended"], run.data.tags["mlflow.note.content"]) == ("rounds", QUESTION)
    assert run.data.params["algorithm.rounds"] == "3"
    assert run.data.params["links.edge-cloud.latency"] == effective["links"]["edge-cloud"]["latency"]
    assert run.data.metrics["accuracy/global/cloud"] == said["accuracy"]["global"]
    assert run.data.metrics["run/bytes/edge-cloud"] == said["bytes"]["edge-cloud"]
    series: defaultdict[str, list[Any]] = defaultdict(list)
    for scalar in given:
        series[scalar.tag].append((scalar.step, round((began + scalar.t) * 1000), scalar.value))
    assert set(run.data.metrics) == set(series)
    for tag in ("accuracy/own/edge-1", "delivered_bytes/edge-cloud", "round_seconds/cloud"):
        found = client(folder).get_metric_history(run.info.run_id, tag)
        assert sorted((each.step, each.timestamp, each.value) for each in found) == series[tag]
    artifacts = {each.path for each in client(folder).list_artifacts(run.info.run_id)}
    assert artifacts == {"report.html", "scenario.yaml"}
    assert Path(run.info.artifact_uri.removeprefix("file://")).is_relative_to(folder / "artifacts")


def test_a_run_is_written_once(tmp_path: Path, new_store: NewStore) -> None:
    folder = new_store(tmp_path / "out")
    path = Example(rounds=1).build(tmp_path / "bob's dropout")
    written(path, folder)
    with pytest.raises(AlreadyThereError, match="bob's dropout is already in"):
        written(path, folder)
    (run,) = runs_in(folder, "dropout")
    client(folder).delete_run(run.info.run_id)
    written(path, folder)
    assert len(runs_in(folder, "dropout")) == 1


@pytest.mark.parametrize(("ending", "status"), [("failed", "FAILED"), ("interrupted", "KILLED"), (None, "FAILED")])
def test_a_run_ends_as_it_ended(tmp_path: Path, new_store: NewStore, ending: str | None, status: str) -> None:
    folder = new_store(tmp_path / "out")
    written(Example(rounds=2, rounds_made=1, ending=ending).build(tmp_path / "run"), folder)
    (run,) = runs_in(folder, "dropout")
    assert run.info.status == status
    assert run.data.tags["edgebed.verdict"] == "fail"
    assert ("edgebed.error" in run.data.tags) == (ending == "failed")


def test_the_runs_of_a_sweep_are_nested(tmp_path: Path, new_store: NewStore) -> None:
    folder = new_store(tmp_path / "out")
    for seed, case in ((1, "a"), (2, "a"), (1, "b, links.x.loss=5%")):
        path = tmp_path / f"run-{case[0]}-{seed}"
        plan = json.dumps({"name": "dropout", "seed": seed})
        Record.create(path, plan, {"sweep": "mine", "case": case}).close()
        written(path, folder)
    runs = runs_in(folder, "mine")
    (sweep,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    nested = [run for run in runs if run is not sweep]
    assert {run.data.tags["mlflow.parentRunId"] for run in nested} == {sweep.info.run_id}
    assert sorted(run.info.run_name for run in nested) == ["a, seed 1", "a, seed 2", "b, links.x.loss=5%, seed 1"]
    assert (sweep.info.run_name, sweep.info.status) == ("mine", "FINISHED")


def test_names_and_values_that_mlflow_refuses(tmp_path: Path, new_store: NewStore) -> None:
    folder = new_store(tmp_path / "out")
    effective = {"links": {"device-0-1 -> edge-0": {"loss": "5%"}}, "faults": ["crash"] * 2000, "k" * 300: "x"}
    record = Record.create(tmp_path / "run", json.dumps({"name": "dropout"}), {"effective": effective})
    for name in ("../loss", "loss%", "n" * 200):  # a node's reports may have any name
        record.metric(1.0, "n" * 200, 1, "train", name, float("nan"))
    record.close()
    written(tmp_path / "run", folder)
    (run,) = runs_in(folder, "dropout")
    assert run.data.params["links.device-0-1 -_ edge-0.loss"] == "5%"
    assert run.data.params["faults"] == json.dumps(["crash"] * 2000)[:LONGEST_PARAM]
    assert run.data.params["k" * LONGEST_KEY] == "x"
    assert set(run.data.metrics) == {
        f"loss/train/{'n' * 200}",
        f"loss_/train/{'n' * 200}",
        f"{'n' * 200}/train/{'n' * 200}"[:LONGEST_KEY],
    }


def test_a_failed_export_leaves_nothing(tmp_path: Path, new_store: NewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    folder = new_store(tmp_path / "out")
    monkeypatch.setattr("mlflow.MlflowClient.log_artifact", full)
    with pytest.raises(PlaceError, match=r"MLflow.*out: \[Errno 28\]"):
        written(Example(rounds=1).build(tmp_path / "run"), folder)
    assert runs_in(folder, "dropout") == []


def test_a_store_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("no database" * 100)
    with pytest.raises(PlaceError, match=f"MLflow cannot write to {tmp_path}: "):
        MlflowStore(str(tmp_path))


def test_a_server_that_is_gone(tmp_path: Path, new_store: NewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as gone, History.open(Example(rounds=1).build(tmp_path / "run")) as history:
        gone.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        address = f"http://127.0.0.1:{gone.getsockname()[1]}"
        with pytest.raises(PlaceError, match=f"^MLflow cannot write to {address}: "):
            MlflowStore(address).write(history)


# An audit hook sees every connection that Python makes (docs.python.org/3/library/audit_events.html). MLflow sends
# nothing where it sees a CI service or pytest, so the program runs without their variables.
LISTENING = """
import sys, time
from pathlib import Path

def listen(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        Path("connections").write_text(str(arguments))

sys.addaudithook(listen)
from orchestrator.cli.main import carry_out
codes = []
for kind in ("csv", "parquet", "tensorboard", "mlflow"):
    sys.argv = ["edgebed", "export", "--run", "run", "--to", kind, "out"]
    codes.append(carry_out())
import threading
print(threading.enumerate() == [threading.main_thread()], codes)
"""
QUIET = {"CI", "PYTEST_CURRENT_TEST", "MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK"}


@pytest.mark.slow
@pytest.mark.usefixtures("new_store")  # which makes the reader quiet; the export makes a store of its own
def test_an_export_opens_no_connection_and_leaves_nothing_elsewhere(tmp_path: Path) -> None:
    Example(rounds=1).build(tmp_path / "run")
    (tmp_path / "temporary").mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in QUIET}
    environment["TMPDIR"] = str(tmp_path / "temporary")
    done = subprocess.run(
        [sys.executable, "-c", LISTENING], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "True [0, 0, 0, 0]", done.stderr
    assert not (tmp_path / "connections").exists()
    assert list((tmp_path / "temporary").iterdir()) == []
    assert len(runs_in(tmp_path / "out", "dropout")) == 1


def test_a_link_adds_no_file_from_elsewhere_to_the_store(tmp_path: Path, new_store: NewStore) -> None:
    folder = new_store(tmp_path / "out")
    path = Example(rounds=2).build(tmp_path / "dropout-1")
    (tmp_path / "secret").write_text("of somebody else")
    (path / "report.html").symlink_to(tmp_path / "secret")
    written(path, folder)
    (run,) = runs_in(folder, "dropout")
    assert [each.path for each in client(folder).list_artifacts(run.info.run_id)] == ["scenario.yaml"]
