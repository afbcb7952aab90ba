"""More than two runs against each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.results.record.history import History
from orchestrator.verbs.results.compare_many import ManyRuns, compare_many, print_many, run_overview
from tests.orchestrator.consoles import printed
from tests.orchestrator.example_run import Example

EXAMPLES = {
    "dropout-20261122-154050-aaaa": Example(rounds=3),
    "dropout-20261122-154051-bbbb": Example(rounds=3, seed=8, gain=0.2),
    "dropout-20261122-154052-cccc": Example(rounds=3, settings={"model": "[mlp]"}),
    "dropout-20261122-154053-dddd": Example(rounds=3, rounds_made=2, ending=None),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name, example in EXAMPLES.items():
        example.build(folder / name)
    return folder


def compared(runs: Path, *names: str) -> ManyRuns:
    found = []
    for name in names:
        with History.open(runs / name) as history:
            found.append(run_overview(history))
    return compare_many(found)


def verb(runs: Path, *words: str) -> Any:
    return CliRunner().invoke(cli, ["compare", *words, "--runs", str(runs)])


def test_only_settings_that_differ_are_shown_with_a_value_for_each_run(runs: Path) -> None:
    assert compared(runs, *EXAMPLES).differences == {"seed": [7, 8, 7, 7], "model": [None, None, "[mlp]", None]}


def test_the_same_scenario(runs: Path) -> None:
    one = next(iter(EXAMPLES))
    found = compared(runs, one, one, one)
    assert found.differences == {}
    assert "same scenario, every setting equal" in printed(80, lambda console: print_many(found, console))


def test_the_rows_are_those_of_the_summaries(runs: Path) -> None:
    rows = [run.row for run in compared(runs, *EXAMPLES).runs]
    assert [row["run"] for row in rows] == list(EXAMPLES)
    assert [row["rounds"] for row in rows] == [3, 3, 3, 2]
    assert [row["verdict"] for row in rows] == ["pass", "pass", "pass", "fail"]
    assert rows[0]["accuracy.global"] > rows[1]["accuracy.global"]  # its accuracy rises more quickly


@pytest.mark.parametrize("width", [40, 80, 200])
def test_text(runs: Path, width: int) -> None:
    shown = printed(width, lambda console: print_many(compared(runs, *EXAMPLES), console))
    assert all(len(line) <= width for line in shown.splitlines())
    assert set(EXAMPLES) <= set(shown.split())
    assert "[mlp]" in shown  # not taken for markup
    assert "crashed" in shown  # the state of a run without an outcome
    assert "all runs: name dropout, algorithm hierfavg, driver namespaces" in " ".join(shown.split())
    assert "…" not in shown


def test_the_results_of_four_runs_have_one_line_each_in_80_columns(runs: Path) -> None:
    shown = printed(80, lambda console: print_many(compared(runs, *EXAMPLES), console))
    _, _, results = shown.partition("\nresults\n")
    assert [line.split()[:4] for line in results.splitlines()[-4:]] == [
        ["1", "7", "pass", "rounds"],
        ["2", "8", "pass", "rounds"],
        ["3", "7", "pass", "rounds"],
        ["4", "7", "fail", "crashed"],
    ]


def test_the_command(runs: Path) -> None:
    names = list(EXAMPLES)
    said = json.loads(verb(runs, *names, "--json").stdout)
    assert [row["run"] for row in said["runs"]] == names
    assert said["same_scenario"] is False
    assert said["differences"][0] == {"setting": "seed", "values": [7, 8, 7, 7]}
    assert names[3] in verb(runs, *names).stdout
    assert json.loads(verb(runs, *names[:2], "--json").stdout)["a"] == names[0]  # two runs have another form


@pytest.mark.parametrize("words", [(), ("a",)])
def test_one_run_is_not_compared(runs: Path, words: tuple[str, ...]) -> None:
    done = verb(runs, *words)
    assert done.exit_code == 2
    assert "name two runs or more" in done.output
