"""Runs that a program makes and reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.errors import RunError, ScenarioError
from orchestrator.results.rows import Metric
from orchestrator.verbs.runs import load, up

SCENARIO: dict[str, Any] = {
    "name": "mapped",
    "algorithm": {"name": "fedavg", "rounds": 2},
    "data": {"dataset": "digits", "partition": "iid", "samples_per_client": 40},
    "model": "mlp",
    "topology": {"edges": 0, "devices": 2, "cloud": True},
    "links": {"device-cloud": {"latency": "5ms", "rate": "20mbit"}},
    "driver": "sim",
}


def test_a_mapping_and_a_file_give_the_same_run(tmp_path: Path) -> None:
    file = tmp_path / "same.yaml"
    file.write_text(yaml.safe_dump(SCENARIO))
    mapped = up(SCENARIO, runs=tmp_path / "runs", workers=1)
    read = up(str(file), runs=tmp_path / "runs", workers=1)
    assert mapped.verdict == read.verdict != "fail"
    assert mapped.summary["rounds"] == 2
    assert mapped.rows("metrics") == read.rows("metrics")
    assert set(mapped.rows("metrics")[0]) == set(Metric._fields)
    assert yaml.safe_load((mapped.path / "scenario.yaml").read_text()) == SCENARIO
    assert (read.path / "scenario.yaml").read_bytes() == file.read_bytes()
    with mapped.history() as history:
        assert history.driver == "sim"
    assert load(mapped.path) == load(mapped.path.name, runs=tmp_path / "runs") == mapped
    assert load(runs=tmp_path / "runs") == read


def test_overrides_are_applied(tmp_path: Path) -> None:
    run = up(SCENARIO, overrides=["algorithm.rounds=1", "name=other"], runs=tmp_path, workers=1)
    assert (run.summary["name"], run.summary["rounds"]) == ("other", 1)


def test_a_kind_of_rows_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a record has no 'accuracy'; it has events, faults, "):
        load_example(tmp_path).rows("accuracy")


def load_example(folder: Path) -> Any:
    return up(SCENARIO, overrides=["algorithm.rounds=1"], runs=folder, workers=1)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"modl": "mlp"}, r"scenario.yaml:\d+: modl: "),
        ({"links": {"device-cloud": {"latency": Path("x")}}}, "the mapping: .*cannot be written as YAML"),
        ({"data": {"dataset": "npz:absent.npz"}}, r"scenario.yaml:\d+: data.dataset: .*absent.npz"),
    ],
)
def test_mistakes_are_told_before_anything_is_made(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        up(SCENARIO | change, runs=tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []


def test_workers_of_a_driver_that_has_none(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="workers: they are for the driver sim; under namespaces"):
        up(SCENARIO | {"driver": "namespaces"}, runs=tmp_path / "runs", workers=2)


def test_inside_an_event_loop(tmp_path: Path) -> None:
    async def cell() -> None:
        up(SCENARIO, runs=tmp_path / "runs")

    with pytest.raises(RunError, match="inside a running event loop"):
        asyncio.run(cell())
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no run in"):
        load(runs=tmp_path)
