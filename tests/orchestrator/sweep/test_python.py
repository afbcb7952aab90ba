"""Sweeps that a program runs and reads."""

from __future__ import annotations

import asyncio
import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.errors import ScenarioError
from orchestrator.sweep.python import SweepRuns, sweep

SCENARIO: dict[str, Any] = {
    "driver": "sim",
    "algorithm": {"name": "fedavg", "rounds": 1},
    "data": {"dataset": "digits", "partition": "iid", "samples_per_client": 40, "evaluate_samples": 100},
    "model": "mlp",
    "topology": {"devices": 2},
}
SWEEP: dict[str, Any] = {
    "scenario": SCENARIO,
    "cases": {"slow": {"algorithm.learning_rate": 0.01}, "fast": {"algorithm.learning_rate": 0.1}},
    "seeds": [1, 2],
}


def test_runs_and_table(tmp_path: Path) -> None:
    done = sweep(SWEEP, runs=tmp_path, workers=1)
    assert list(done.runs) == [("slow", 1), ("slow", 2), ("fast", 1), ("fast", 2)]
    assert done.errors == {}
    assert done.path == tmp_path / "sweep"
    with done.runs["fast", 2].history() as history:
        assert history.plan["seed"] == 2
        assert history.plan["algorithm"]["params"]["learning_rate"] == 0.1
    last = [run.summary["accuracy"]["global"] for (case, _), run in done.runs.items() if case == "fast"]
    row = done.rows[1]
    assert (row["case"], row["runs"]) == ("fast", 2)
    assert row["final.global"] == pytest.approx(statistics.fmean(last))
    assert row["final.global.deviation"] == pytest.approx(statistics.stdev(last))
    table = done.table
    assert list(table.case) == ["slow", "fast"]
    assert table["final.global"][1] == row["final.global"]
    written = json.loads((done.path / "sweep.json").read_text())["cases"][1]["figures"]["final.global"]
    assert written["mean"] == row["final.global"]
    assert [trace.name for trace in done.plot(x="seconds").data if trace.name] == ["slow", "fast"]
    shown = done._repr_html_()
    assert shown.count("<tr>") == 3
    assert f"<td>{row['final.global'] * 100:.1f} ± {row['final.global.deviation']:.1%}</td>" in shown
    (global_,) = done.comparisons.query("figure == 'final.global'").to_dict("records")
    assert (global_["case"], global_["reference"], global_["seeds"]) == ("fast", "slow", 2)
    assert global_["difference"] == pytest.approx(row["final.global"] - done.rows[0]["final.global"])
    assert global_["low"] < global_["difference"] < global_["high"]
    assert 'sweep.html">page of the sweep</a>' in shown
    # the same sweep again, from files: nothing is run
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump(SCENARIO))
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(SWEEP | {"scenario": "scenario.yaml"}))
    assert sweep(tmp_path / "sweep.yaml", runs=tmp_path).runs == done.runs


def test_a_failed_run_does_not_end_the_sweep_of_a_notebook(tmp_path: Path) -> None:
    cases = {"absent": {"data": {"dataset": "npz:absent.npz"}}, "there": {}}

    async def cell() -> SweepRuns:
        return sweep(SWEEP | {"cases": cases, "seeds": [1]}, {"name": "noted"}, driver="sim", runs=tmp_path, workers=1)

    done = asyncio.run(cell())
    assert list(done.runs) == [("there", 1)]
    assert "absent.npz" in done.errors["absent", 1]
    assert done.runs["there", 1].summary["name"] == "noted"
    assert [(row["case"], row["runs"]) for row in done.rows] == [("absent", 0), ("there", 1)]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"vary": {"algorithm.rnds": [1]}}, r"sweep.yaml:\d+: .*rnds"),
        ({"scenario": SCENARIO | {"modl": "mlp"}}, r"scenario.yaml:\d+: modl: "),
    ],
)
def test_mistakes_are_reported_before_anything_is_made(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        sweep(SWEEP | change, runs=tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []
