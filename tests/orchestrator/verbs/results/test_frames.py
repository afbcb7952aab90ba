"""A run as tables of pandas: the same numbers as in its summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.verbs.python_interface import Run, compare, up
from tests.orchestrator.example_run import Example

SCENARIO: dict[str, Any] = {
    "algorithm": {"name": "hierfavg", "rounds": 3, "learning_rate": 0.1},
    "data": {"dataset": "digits", "samples_per_client": 40},
    "model": "mlp",
    "topology": {"edges": 2, "devices_per_edge": 2},
    "faults": [{"round": 2, "node": "device-0-1", "action": "crash", "for": "1s"}],
    "driver": "sim",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return up(SCENARIO, runs=tmp_path_factory.mktemp("frames"), workers=1)


def test_the_accuracies_are_those_of_the_summary(run: Run) -> None:
    table = run.accuracy
    assert list(table.columns) == ["round", "seconds", "node", "scope", "value", "step"]
    best = table[(table.scope == "global") & (table["round"] == 3)]
    assert list(best.node) == ["cloud"]
    assert best.value.iloc[0] == run.summary["accuracy"]["global"]
    assert set(table.scope) == {"global", "own"}


def test_the_bytes_are_those_of_the_summary(run: Run) -> None:
    table = run.traffic
    received = table[table.direction == "received"].groupby("kind")["messages"].sum()
    assert received["update"] > 0
    assert set(run.links.link_class) == set(run.summary["bytes"])


def test_the_old_name_of_the_traffic(run: Run) -> None:
    with pytest.warns(DeprecationWarning, match=r"run\.bytes has a new name: run\.traffic"):
        assert len(run.bytes) == len(run.traffic)


def test_the_other_tables(run: Run) -> None:
    assert list(run.faults.action) == ["crash"]
    assert list(run.nodes.name)[:3] == ["cloud", "edge-0", "edge-1"]
    assert list(run.nodes[run.nodes.tier == "device"].samples) == [40] * 4
    assert dict(zip(run.checks.name, run.checks.verdict, strict=True))["finished"] == "pass"
    assert {"round", "training"} <= set(run.events.name)


def test_what_the_host_reported(run: Run, tmp_path: Path) -> None:
    columns = ["t", "host", "quantity", "source", "scope", "value", "detail"]
    assert (list(run.sensors.columns), len(run.sensors)) == (columns, 0)  # none on a virtual clock
    table = Run(Example(sensors=True).build(tmp_path)).sensors
    assert list(table.columns) == columns
    assert table[table.scope == "rail VDD_IN"].value.max() == 10.0


def test_several_runs(run: Run, tmp_path: Path) -> None:
    other = up(SCENARIO, {"algorithm.rounds": 2, "seed": 2}, runs=tmp_path, workers=1)
    table = compare([run, other.path])
    assert list(table.run) == [run.path.name, other.path.name]
    assert list(table.rounds) == [3, 2]
    assert list(table.seed) == [1, 2]
    assert table["accuracy.global"].iloc[0] == run.summary["accuracy"]["global"]
    assert table["bytes.edge-cloud"].iloc[0] == run.summary["bytes"]["edge-cloud"]


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[4] / "docs/reference/python.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(yaml.safe_dump(SCENARIO))
    exec(code, {})
    said = capsys.readouterr().out
    assert said.startswith("pass 0.")
    assert "accuracy.global" in said
    for table in ("accuracy", "links", "bytes", "faults", "events", "nodes", "checks"):
        assert f"`run.{table}`" in page
        assert hasattr(Run, table)
