"""The page of a sweep, from the records of runs that never were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import RunError
from orchestrator.results.history import History
from orchestrator.scenario.reading import parse
from orchestrator.sweep.page import render, write_page
from orchestrator.sweep.quantities import Result, figures
from orchestrator.sweep.reading import Combination, Sweep, Target
from tests.orchestrator.example_run import Example
from tests.orchestrator.report.test_page import Page

SCENARIO = parse("algorithm: {name: hierfavg}", "base.yaml")
GAINS = {"quick": 0.4, "slow <b>": 0.15, "hierfavg, links.device-edge.latency=50ms, links.device-edge.loss=5%": 0.25}
SEEDS = (1, 2, 3)


def example_sweep(folder: Path, accuracy: str | None = "60%") -> tuple[Sweep, list[Result]]:
    """Three cases with three seeds each; the slow case reaches 60% in no run."""
    target = None if accuracy is None else Target.model_validate({"accuracy": accuracy})
    first = next(iter(GAINS))
    combinations = [
        Combination(case, seed, (f"seed={seed}",), SCENARIO, None if case == first else first)
        for case in GAINS
        for seed in SEEDS
    ]
    results: list[Result] = []
    for each in combinations:
        example = Example(seed=each.seed, gain=GAINS[each.case] * (1 + each.seed / 20), rounds=5, devices_per_edge=2)
        run = example.build(folder / f"run-{len(results)}")
        with History.open(run) as history:
            results.append(Result(each, run, "pass", None, figures(history, target)))
    source = "# Which of them is the quickest?\nscenario: base.yaml\n"
    return Sweep("mine", Path("mine.yaml"), Path("base.yaml"), target, tuple(combinations), "", source), results


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sweep, list[Result]]:
    return example_sweep(tmp_path_factory.mktemp("mine"))


def test_the_page_is_one_file_that_loads_nothing(swept: tuple[Sweep, list[Result]]) -> None:
    text = render(*swept)
    page = Page(text)
    assert page.open == []
    assert page.loads == [f"run-{number}/report.html" for number in range(9)]  # links, not loaded
    assert page.tags.count("script") == 3
    assert "default-src 'none'" in text


def test_the_page_says_what_the_sweep_found(swept: tuple[Sweep, list[Result]]) -> None:
    page = Page(render(*swept))
    for words in (
        "Which of them is the quickest?",
        "9 of 9 runs complete. Verdicts: 9 pass.",
        "Accuracy on the global test set",
        "Band: from the lowest to the highest run.",
        "Target: 60.0% on the global test",
        "slow <b>",
        "case minus quick, paired by seed",
    ):
        assert words in page.text


def test_a_curve_and_a_band_for_each_case(swept: tuple[Sweep, list[Result]]) -> None:
    figure = Page(render(*swept)).figures["accuracy-rounds"]
    bands, means = figure["marks"][:3], figure["marks"][3:]
    assert [trace["name"] for trace in means] == ["quick", "slow <b>", list(GAINS)[2]]
    assert means[0]["x"] == [1, 2, 3, 4, 5]
    for band, mean in zip(bands, means, strict=True):
        assert all(low <= y <= high for low, y, high in zip(band["low"], mean["y"], band["high"], strict=True))
    ends = [each.figures["final.global"] for each in swept[1][:3]]
    assert means[0]["y"][-1] == pytest.approx(sum(ends) / 3, abs=1e-5)


def test_bars_to_the_target(swept: tuple[Sweep, list[Result]]) -> None:
    found = Page(render(*swept)).figures
    *rounds, strokes, said = found["target-rounds"]["marks"]
    reached = [each.figures["to_target.rounds"] for each in swept[1][:3]]
    assert rounds[0]["x1"] == [pytest.approx(sum(reached) / 3)]
    assert (strokes["low"][0], strokes["high"][0]) == (min(reached), max(reached))
    assert rounds[1]["x1"] == [5]
    assert said["texts"][1] == "≥ 5 ± 0 (0 of 3)"
    assert {mark.get("name") for mark in found["target-bytes"]["marks"]} >= {"device-edge", "edge-cloud"}


def test_without_a_target_there_are_no_bars(tmp_path: Path) -> None:
    page = Page(render(*example_sweep(tmp_path, None)))
    assert set(page.figures) == {"accuracy-rounds", "accuracy-time"}
    assert "To the target" not in page.text


def test_failed_and_missing_runs_are_reported(swept: tuple[Sweep, list[Result]]) -> None:
    sweep, results = swept
    broken = replace(results[0], run=None, verdict=None, error="cloud <i> ended", figures={})
    page = Page(render(sweep, [broken, *results[1:4]]))
    assert "3 of 9 runs complete. Verdicts: 1 failed, 3 pass." in page.text
    assert "quick, seed 1: cloud <i> ended" in page.text
    assert "No run reported an accuracy." in Page(render(sweep, [])).text


def test_write_page(swept: tuple[Sweep, list[Result]], tmp_path: Path) -> None:
    assert write_page(*swept, tmp_path) == tmp_path / "sweep.html"
    assert 50_000 < (tmp_path / "sweep.html").stat().st_size < 150_000
    with pytest.raises(RunError, match="cannot be written"):
        write_page(*swept, tmp_path / "nowhere")


def test_figures_for_papers_need_matplotlib(
    swept: tuple[Sweep, list[Result]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_page(*swept, tmp_path)
    with monkeypatch.context() as without:
        without.setattr("importlib.util.find_spec", lambda name: None)
        write_page(*swept, tmp_path, with_figures=True)
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.html"]
    write_page(*swept, tmp_path, with_figures=True)
    assert {path.suffix for path in (tmp_path / "figures").iterdir()} == {".pdf"}
