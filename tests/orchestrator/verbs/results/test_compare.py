from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.results.history import History
from orchestrator.verbs.results.compare import (
    ComparedFigure,
    ManyRuns,
    RunComparison,
    compare,
    compare_many,
    print_comparison,
    print_many,
    run_overview,
)
from tests.orchestrator.consoles import printed
from tests.orchestrator.example_run import ROUND, Example


def run(directory: Path, example: Example) -> History:
    return History.open(example.build(directory))


def compared(a: History, b: History) -> RunComparison:
    return compare(run_overview(a), run_overview(b))


@pytest.fixture
def normal(tmp_path: Path) -> History:
    return run(tmp_path / "normal", Example())


def rows(comparison: RunComparison) -> dict[str, ComparedFigure]:
    return {row.name: row for row in comparison.rows}


def test_a_run_is_like_its_twin(normal: History, tmp_path: Path) -> None:
    comparison = compared(normal, run(tmp_path / "twin", Example()))
    told = comparison.to_json()
    assert (told["a"], told["b"], told["same_scenario"]) == ("normal", "twin", True)
    assert {row.change for row in comparison.rows if row.unit != "text"} == {0}


def test_settings_that_differ_are_named_by_their_path(normal: History, tmp_path: Path) -> None:
    other = Example(seed=8, settings={"links": {"device-edge": {"latency": "3ms"}}, "faults": [{"at": "20s"}]})
    named = compared(normal, run(tmp_path / "other", other)).both.differences
    assert named["seed"] == [7, 8]
    assert named["links.device-edge.jitter"] == ["1ms", None]
    assert named["faults"] == [None, [{"at": "20s"}]]
    assert "links.device-edge.latency" not in named


def test_tcp_of_nodes_that_differs_is_named_though_the_scenario_is_the_same(tmp_path: Path) -> None:
    ours, theirs = ({"tcp_congestion_control": name, "tcp_sack": "1"} for name in ("cubic", "bbr"))
    comparison = compared(run(tmp_path / "ours", Example(tcp=ours)), run(tmp_path / "theirs", Example(tcp=theirs)))
    assert comparison.both.same_scenario
    assert comparison.both.differences == {"net.ipv4.tcp_congestion_control": ["cubic", "bbr"]}
    assert "net.ipv4.tcp_congestion_control" in printed(100, lambda console: print_comparison(comparison, console))


def test_lists_differ_item_by_item(normal: History, tmp_path: Path) -> None:
    one = run(tmp_path / "one", Example(settings={"faults": [{"at": "20s", "action": "crash"}]}))
    other = run(tmp_path / "other", Example(settings={"faults": [{"at": "30s", "action": "crash"}]}))
    assert list(compared(one, other).both.differences) == ["faults.0.at"]


def test_accuracy_and_time_to_it(normal: History, tmp_path: Path) -> None:
    slow = run(tmp_path / "slow", Example(gain=0.2))
    found = rows(compared(normal, slow))
    assert {"accuracy at round 5", "accuracy at round 10"} <= set(found)
    assert (found["accuracy at round 10"].change or 0) < -0.05
    reached = found["time to 70%"]
    assert reached.a == pytest.approx(5 * ROUND - 0.12)  # in the fifth round of 4 s, reported 0.12 s before its end
    assert reached.b is not None
    assert float(reached.b) > float(reached.a or 0)


def test_a_run_that_was_cut_short_is_compared_as_far_as_it_went(normal: History, tmp_path: Path) -> None:
    found = rows(compared(normal, run(tmp_path / "cut", Example(rounds_made=6, ending=None))))
    assert (found["ended"].a, found["ended"].b) == ("rounds", "crashed")
    assert found["accuracy at round 6"].change == 0
    assert found["time to 85%"].b is None
    assert found["check: finished"].b == "fail"
    assert found["delivered: device-edge"].unit == "bytes"


def test_other_metrics_are_plain_numbers_and_change_by_their_size(normal: History) -> None:
    found = run_overview(normal)
    one, other = (
        replace(found, summary=found.summary | {"metrics": {"r2": r2}}, row=found.row | {"r2.all.global": r2})
        for r2 in (-0.5, 0.25)
    )
    two = printed(100, lambda console: print_comparison(compare(one, other), console))
    assert ["-0.5", "0.25", "+0.75", "(+150%)"] in [line.split()[-4:] for line in two.splitlines()]
    many = printed(200, lambda console: print_many(compare_many([one, other, one]), console))
    assert "r2.all" in many.split()
    assert [line.count("-0.5") for line in many.splitlines() if "pass" in line] == [1, 0, 1]


def test_nothing_in_common(normal: History, tmp_path: Path) -> None:
    found = rows(compared(normal, run(tmp_path / "empty", Example(rounds_made=0, ending="failed"))))
    assert not [name for name in found if name.startswith("accuracy at round")]
    assert found["accuracy at the end"].b is None


def test_json(normal: History, tmp_path: Path) -> None:
    result = compared(normal, run(tmp_path / "slow", Example(gain=0.2, seed=9))).to_json()
    assert json.loads(json.dumps(result, allow_nan=False)) == json.loads(json.dumps(result))
    assert result["same_scenario"] is False
    assert result["rows"][0] == {"name": "verdict", "unit": "text", "a": "pass", "b": "pass", "change": None}


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_text(normal: History, tmp_path: Path, width: int) -> None:
    long = tmp_path / "a-run-with-a-name-that-is-rather-long-20261122-154058-1ef8"
    other = run(long, Example(gain=0.2, settings={"model": "[mlp]"}))
    found = compared(normal, other)
    shown = printed(width, lambda console: print_comparison(found, console))
    assert "[mlp]" in shown  # not taken for markup
    assert "points" in shown
    assert {normal.run, other.run} <= set(shown.split())
    assert "…" not in shown
    said = " ".join(shown.split())
    for row in found.rows:
        assert row.name in said


def test_the_same_scenario(normal: History) -> None:
    shown = printed(80, lambda console: print_comparison(compared(normal, normal), console))
    assert "same scenario" in shown


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


def compared_many(runs: Path, *names: str) -> ManyRuns:
    found = []
    for name in names:
        with History.open(runs / name) as history:
            found.append(run_overview(history))
    return compare_many(found)


def verb(runs: Path, *words: str) -> Any:
    return CliRunner().invoke(cli, ["compare", *words, "--runs", str(runs)])


def test_only_settings_that_differ_are_shown_with_a_value_for_each_run(runs: Path) -> None:
    assert compared_many(runs, *EXAMPLES).differences == {"seed": [7, 8, 7, 7], "model": [None, None, "[mlp]", None]}


def test_many_runs_of_the_same_scenario(runs: Path) -> None:
    one = next(iter(EXAMPLES))
    found = compared_many(runs, one, one, one)
    assert found.differences == {}
    assert "same scenario, every setting equal" in printed(80, lambda console: print_many(found, console))


def test_the_rows_are_those_of_the_summaries(runs: Path) -> None:
    rows = [run.row for run in compared_many(runs, *EXAMPLES).runs]
    assert [row["run"] for row in rows] == list(EXAMPLES)
    assert [row["rounds"] for row in rows] == [3, 3, 3, 2]
    assert [row["verdict"] for row in rows] == ["pass", "pass", "pass", "fail"]
    assert rows[0]["accuracy.global"] > rows[1]["accuracy.global"]  # its accuracy rises more quickly


@pytest.mark.parametrize("width", [40, 80, 200])
def test_text_of_many(runs: Path, width: int) -> None:
    shown = printed(width, lambda console: print_many(compared_many(runs, *EXAMPLES), console))
    assert all(len(line) <= width for line in shown.splitlines())
    assert set(EXAMPLES) <= set(shown.split())
    assert "[mlp]" in shown  # not taken for markup
    assert "crashed" in shown  # the state of a run without an outcome
    assert "all runs: name dropout, algorithm hierfavg, driver namespaces" in " ".join(shown.split())
    assert "…" not in shown


def test_the_results_of_four_runs_have_one_line_each_in_80_columns(runs: Path) -> None:
    shown = printed(80, lambda console: print_many(compared_many(runs, *EXAMPLES), console))
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
