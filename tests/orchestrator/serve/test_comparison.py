"""Several runs side by side, and those of a sweep as bands over their seeds."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from orchestrator.record.directory import RunDirectory
from orchestrator.results.history import History
from orchestrator.serve.comparison import cases_of, cases_of_sweep, several
from tests.orchestrator.example_run import Example


def finals(runs: dict[str, RunDirectory]) -> list[float]:
    found = []
    for directory in runs.values():
        with History.open(directory.path) as history:
            found.append(history.global_series("accuracy")[-1].value)
    return found


@pytest.fixture
def seeds(tmp_path: Path) -> dict[str, RunDirectory]:
    """Three runs that differ in nothing but their seed, and in what they reached."""
    gains = {7: 0.31, 8: 0.25, 9: 0.4}
    paths = {
        str(seed): Example(rounds=3, seed=seed, gain=gain).build(tmp_path / str(seed)) for seed, gain in gains.items()
    }
    return {name: RunDirectory(path) for name, path in paths.items()}


def test_runs_that_differ_in_their_seed_are_a_band(seeds: dict[str, RunDirectory]) -> None:
    found = several(seeds, over_seeds=None)
    values = finals(seeds)
    assert (found["has_seeds"], found["over_seeds"]) == (True, True)
    ((case, results),) = [(each["case"], each["results"]) for each in found["cases"]]
    assert case == "all runs"
    assert results["accuracy.global"] == pytest.approx([fmean(values), stdev(values)])
    assert "seed" not in results
    area, line = found["figures"]["accuracy-rounds"]["marks"]
    assert (area["mark"], area["low"][-1], area["high"][-1]) == ("area", round(min(values), 5), round(max(values), 5))
    assert (line["name"], line["x"], line["y"][-1]) == ("all runs", [1.0, 2.0, 3.0], round(fmean(values), 5))
    assert found["figures"]["loss-time"]["x"]["title"] == "seconds of training"


def test_each_run_by_itself(seeds: dict[str, RunDirectory]) -> None:
    found = several(seeds, over_seeds=False)
    marks = found["figures"]["accuracy-rounds"]["marks"]
    assert [(mark["mark"], mark["name"]) for mark in marks] == [("line", name) for name in ("1: 7", "2: 8", "3: 9")]
    assert [mark["y"][-1] for mark in marks] == [round(value, 5) for value in finals(seeds)]
    assert found["cases"][0]["results"]["rounds"] == [3, None]


def test_the_cases_of_a_sweep_have_its_names(seeds: dict[str, RunDirectory]) -> None:
    named = {"7": "slow", "8": "slow", "9": "fast"}
    found = several(seeds, over_seeds=True, named=named)
    assert [(each["case"], each["runs"]) for each in found["cases"]] == [("slow", ["7", "8"]), ("fast", ["9"])]
    partly = several(seeds, over_seeds=True, named={"7": "slow"})
    assert [each["case"] for each in partly["cases"]] == ["all runs"]


def test_cases_by_the_settings_that_differ() -> None:
    differences: dict[str, list[Any]] = {
        "name": ["a", "b", "c"],
        "seed": [1, 2, 1],
        "links.loss": ["1%", "1%", None],
        "x": [{"y": 1}] * 3,
    }
    assert cases_of(["r", "s", "t"], differences, over_seeds=True) == {
        '1: 1%, {"y": 1}': ["r", "s"],
        '2: –, {"y": 1}': ["t"],
    }
    assert list(cases_of(["r", "s", "t"], {}, over_seeds=False)) == ["1", "2", "3"]
    long = cases_of(["r"], {"x": ["y" * 200]}, over_seeds=True)
    assert list(long) == ["y" * 59 + "…"]


@pytest.mark.parametrize(
    "text", [None, "{", "[]", '{"cases": 3}', '{"cases": [{"case": "a"}]}', '{"cases": [{"case": "a", "runs": [3]}]}']
)
def test_a_sweep_that_shows_nothing(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "sweep.json").write_text(text)
    assert cases_of_sweep(tmp_path) == {}


def test_a_sweep_reports_its_cases(tmp_path: Path) -> None:
    runs = [{"seed": 1, "run": "/elsewhere/sweep/one"}, {"seed": 2, "run": None}]
    (tmp_path / "sweep.json").write_text(json.dumps({"cases": [{"case": "slow", "runs": runs}]}))
    assert cases_of_sweep(tmp_path) == {f"{tmp_path.name}/one": "slow"}
