"""Event files: read back by TensorBoard's reader, they are the scalars of the run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from orchestrator.errors import PlaceError
from orchestrator.exports.base import AlreadyThereError
from orchestrator.exports.event_files import EventFileStore
from orchestrator.exports.scalars import epoch, scalars
from orchestrator.record.writer import Record
from orchestrator.results.history import History
from orchestrator.results.summary import summary
from tests.orchestrator.example_run import SCENARIO, Example
from tests.texts import containing


def read(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return found


def text(found: EventAccumulator, tag: str) -> str:
    (event,) = found.Tensors(tag)
    said: bytes = event.tensor_proto.string_val[0]
    return said.decode()


def test_a_run_is_read_back(tmp_path: Path) -> None:
    with History.open(Example(rounds=3).build(tmp_path / "run")) as history:
        place = EventFileStore(str(tmp_path / "out")).write(history)
        given, began, said = scalars(history), epoch(history), summary(history)
    assert Path(place) == tmp_path / "out" / "run"
    found = read(Path(place))
    assert set(found.Tags()["scalars"]) == {scalar.tag for scalar in given}
    for tag in found.Tags()["scalars"]:
        events = [(event.step, event.wall_time, event.value) for event in found.Scalars(tag)]
        expected = [(s.step, began + s.t, pytest.approx(s.value)) for s in given if s.tag == tag]  # stored in 32 bits
        assert events == expected
    assert found.Scalars("accuracy/global/cloud")[-1].value == pytest.approx(said["accuracy"]["global"])
    assert text(found, "scenario") == "".join(f"    {line}\n" for line in SCENARIO.splitlines())
    verdict = text(found, "verdict")
    assert verdict.startswith(f"**{said['verdict']}**\n")
    assert [line.split(" | ")[:2] for line in verdict.splitlines()[4:]] == [
        [f"| {check['name']}", check["verdict"]] for check in said["checks"]
    ]


def test_readers_see_a_run_that_continues(tmp_path: Path) -> None:
    with History.open(Example(rounds=3, rounds_made=2, ending=None).build(tmp_path / "run")) as history:
        files = EventFileStore(str(tmp_path / "out")).begin(history)
        with pytest.raises(AlreadyThereError, match="run is already in"):
            EventFileStore(str(tmp_path / "out")).begin(history)
        files.add(scalars(history))
        assert [event.step for event in read(tmp_path / "out" / "run").Scalars("accuracy/global/cloud")] == [1, 2]
        files.finish(history)
    assert text(read(tmp_path / "out" / "run"), "verdict").startswith("**fail**")


def test_the_same_run_gives_the_same_file(tmp_path: Path) -> None:
    with History.open(Example(rounds=2).build(tmp_path / "run")) as history:
        first, second = (Path(EventFileStore(str(tmp_path / name)).write(history)) for name in ("a", "b"))
    ((one,), (other,)) = (list(place.iterdir()) for place in (first, second))
    assert one.name == other.name
    assert one.read_bytes() == other.read_bytes()


def test_a_failed_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tensorboard.summary.writer.record_writer.RecordWriter.flush", full)
    told = pytest.raises(PlaceError, match=r"run cannot be written \(No space")
    with History.open(Example(rounds=1).build(tmp_path / "run")) as history, told:
        EventFileStore(str(tmp_path / "out")).write(history)
    assert list((tmp_path / "out").iterdir()) == []


def test_the_runs_of_a_sweep_lie_below_their_cases(tmp_path: Path) -> None:
    Record.create(tmp_path / "run", "{}", {"sweep": "mine", "case": "a/../b, links.x.loss=5%"}).close()
    with History.open(tmp_path / "run") as history:
        place = EventFileStore(str(tmp_path / "out")).write(history)
    assert Path(place) == tmp_path / "out" / "mine" / "a___b, links.x.loss=5%" / "run"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with History.open(Example(rounds=1).build(tmp_path / "run")) as history, pytest.raises(PlaceError, match="file"):
        EventFileStore(str(tmp_path / "file")).write(history)


def test_a_scenario_that_is_no_file_is_not_read(tmp_path: Path) -> None:
    path = Example(rounds=2).build(tmp_path / "dropout-1")
    (path / "scenario.yaml").unlink()
    os.mkfifo(path / "scenario.yaml")
    with History.open(path) as history:
        place = EventFileStore(str(tmp_path / "out")).write(history)
    assert text(read(Path(place)), "scenario") == containing("file scenario.yaml of the run")
