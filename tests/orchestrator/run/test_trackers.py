"""Destinations that follow a run: processes beside the run, which never fail it and always end."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import edgebed
from orchestrator.cli.main import cli
from orchestrator.errors import PlaceError
from orchestrator.exports.destinations import Destination
from orchestrator.host.process.processes import run_processes
from orchestrator.record.directory import RunDirectory
from orchestrator.run.down import clear
from orchestrator.run.trackers import tracked
from tests.orchestrator.example_run import Example
from tests.orchestrator.exports.mlflow_stores import NewStore, runs_in

PATIENCE = 60.0  # s


def directory(path: Path, **example: Any) -> RunDirectory:
    Example(**example).build(path)
    found = RunDirectory(path)
    found.logs.mkdir()
    return found


def read(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return found


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def test_readers_see_the_run_before_it_ends(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run, out = directory(tmp_path / "run-1", rounds=3, rounds_made=2, ending=None), tmp_path / "out"
    with tracked(run, [Destination("tensorboard", str(out))]):
        wait_for(lambda: [process.part for process in run_processes(run.run)] == ["tracker"])
        wait_for(lambda: out.exists() and "loss/global/cloud" in read(out / "run-1").Tags()["scalars"])
        assert "verdict" not in read(out / "run-1").Tags()["tensors"]
    assert "verdict" in read(out / "run-1").Tags()["tensors"]
    assert [event.step for event in read(out / "run-1").Scalars("accuracy/global/cloud")] == [1, 2]
    assert run_processes(run.run) == []
    assert capfd.readouterr() == ("", "")


def test_a_destination_that_fails_is_one_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = directory(tmp_path / "run-1", rounds=1)
    (tmp_path / "file").touch()
    destination = Destination("tensorboard", str(tmp_path / "file"))
    with tracked(run, [destination]):
        done = True
    assert done
    out, said = capfd.readouterr()
    assert out == ""
    assert said.startswith("warning: run-1 is not complete in")
    assert said.count("\n") == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from orchestrator.exports.destinations import Destination
from orchestrator.record.directory import RunDirectory
from orchestrator.run.trackers import tracked

with tracked(RunDirectory(Path(sys.argv[1])), [Destination("tensorboard", sys.argv[2])]):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_run_is_finished_after_its_orchestrator_was_killed(tmp_path: Path) -> None:
    run, out = directory(tmp_path / "run-1", rounds=3, rounds_made=2, ending=None), tmp_path / "out"
    subprocess.run([sys.executable, "-c", KILLED, str(run.path), str(out)], check=False)
    removed = clear(run.run, run)  # what `down` does: the tracker may write what is left
    assert (removed.processes, removed.left) == ([], [])
    assert run_processes(run.run) == []
    (event,) = read(out / "run-1").Tensors("verdict")
    assert event.tensor_proto.string_val[0].startswith(b"**fail**")


@pytest.mark.slow
def test_a_run_from_python_is_followed(tmp_path: Path, new_store: NewStore, capfd: pytest.CaptureFixture[str]) -> None:
    store = new_store(tmp_path / "mlflow")
    scenario = {
        "name": "followed",
        "algorithm": {"name": "fedavg", "rounds": 2},
        "data": {"dataset": "digits", "partition": "iid", "samples_per_client": 40},
        "model": "mlp",
        "topology": {"edges": 0, "devices": 2, "cloud": True},
        "driver": "sim",
    }
    run = edgebed.up(scenario, runs=tmp_path / "runs", workers=1, track=f"mlflow:{store}")
    said, (found,) = run.summary, runs_in(store, "followed")
    assert found.info.status == "FINISHED"
    assert found.data.tags["edgebed.verdict"] == said["verdict"]
    assert found.data.metrics["accuracy/global/cloud"] == said["accuracy"]["global"]
    assert found.data.metrics["run/bytes/device-cloud"] == said["bytes"]["device-cloud"]
    assert run_processes(run.path.name) == []
    assert "warning" not in capfd.readouterr().err


def test_a_place_that_is_none_is_reported_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(PlaceError, match="track: 'tb' is not KIND:PLACE"):
        edgebed.up({}, runs=tmp_path / "runs", track="tb")
    told = CliRunner().invoke(cli, ["up", "absent.yaml", "--runs", str(tmp_path / "runs"), "--track", "csv:out"])
    assert isinstance(told.exception, PlaceError)
    assert list(tmp_path.iterdir()) == []
