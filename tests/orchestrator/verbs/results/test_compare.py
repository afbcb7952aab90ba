from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.results.record.history import History
from orchestrator.verbs.results.compare import ComparedFigure, RunComparison, compare, print_comparison, side
from tests.orchestrator.consoles import printed
from tests.orchestrator.example_run import ROUND, Example


def run(directory: Path, example: Example) -> History:
    return History.open(example.build(directory))


def compared(a: History, b: History) -> RunComparison:
    return compare(side(a), side(b))


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
