"""The scalars of a run: the numbers of its record, each once, and never another afterwards."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from orchestrator.exports.scalars import Scalar, Unwritten, epoch, scalars, settings
from orchestrator.results.history import History
from orchestrator.results.summary import summary
from orchestrator.results.traffic import volumes
from tests.orchestrator.example_run import ROUND, SETUP, Example


def of(path: Path) -> dict[str, list[Scalar]]:
    series: defaultdict[str, list[Scalar]] = defaultdict(list)
    with History.open(path) as history:
        for scalar in scalars(history):
            series[scalar.tag].append(scalar)
    return dict(series)


def test_the_series_are_the_numbers_of_the_record(tmp_path: Path) -> None:
    path = Example(rounds=3).build(tmp_path / "run")
    series = of(path)
    with History.open(path) as history:
        said, metrics = summary(history), history.metrics("accuracy", "own", "edge-1")
    assert [(s.step, s.t, s.value) for s in series["accuracy/own/edge-1"]] == [(m.round, m.t, m.value) for m in metrics]
    assert series["accuracy/global/cloud"][-1].value == said["accuracy"]["global"]
    assert [s.step for s in series["loss/global/cloud"]] == [1, 2, 3]
    # A round of the example's cloud begins with the round's time and ends 0.1 s before the next.
    assert [s.value for s in series["round_seconds/cloud"]] == pytest.approx([ROUND - 0.1] * 3)
    assert {tag: s[-1].value for tag, s in series.items() if tag.startswith("run/")} == {
        "run/rounds": 3,
        "run/seconds": pytest.approx(said["seconds"]),
        "run/wall_seconds": said["wall_seconds"],
        "run/overruns": 0,
        **{f"run/bytes/{name}": count for name, count in said["bytes"].items()},
    }


def test_bytes_at_the_end_of_a_round_lie_between_two_readings(tmp_path: Path) -> None:
    path = Example(rounds=2, with_faults=False).build(tmp_path / "run")
    with History.open(path) as history:
        times, totals = volumes.delivered_bytes(history)["edge-cloud"]
    # Readings are taken 0.5 s after each second. Models go down in the first second of a round, and the first reading
    # counts as the beginning. Round 1 ends at 3.9 s, 0.4 s after a reading and 0.6 s before the next.
    assert times[:5] == [SETUP + second + 0.5 for second in range(5)]
    by_the_end = totals[3] + 0.4 * (totals[4] - totals[3]) - totals[0]
    (first, _) = of(path)["delivered_bytes/edge-cloud"]
    assert first.step == 1
    assert first.t == pytest.approx(SETUP + 3.9)
    assert first.value == pytest.approx(by_the_end)


def test_a_scalar_never_changes_while_the_run_continues(tmp_path: Path) -> None:
    whole = of(Example(rounds=5).build(tmp_path / "whole"))
    seen = 0
    for made in range(5):
        part = of(Example(rounds=5, rounds_made=made, ending=None).build(tmp_path / str(made)))
        for tag, found in part.items():
            assert whole[tag][: len(found)] == found
            seen += len(found)
    assert seen > 100


def test_a_round_counts_its_bytes_when_the_counters_have_been_read_after_it(tmp_path: Path) -> None:
    # The record ends with round 2, whose last reading came before its end.
    part = of(Example(rounds=5, rounds_made=2, ending=None).build(tmp_path / "run"))
    assert [s.step for s in part["round_seconds/cloud"]] == [1, 2]
    assert [s.step for s in part["delivered_bytes/edge-cloud"]] == [1]


def test_only_what_is_new_is_written() -> None:
    first, second, other = Scalar("a", 1, 0.5, 1.0), Scalar("a", 2, 1.5, 1.0), Scalar("b", 1, 0.5, 1.0)
    unwritten = Unwritten()
    assert unwritten.among([first]) == [first]
    assert unwritten.among([first, second, other]) == [second, other]
    assert unwritten.among([first, second, other]) == []


def test_the_run_started_when_its_record_says(tmp_path: Path) -> None:
    with History.open(Example(rounds=1).build(tmp_path / "run")) as history:
        assert epoch(history) == 1777887000  # 2026-05-04T09:30:00+0000: date -d … +%s


def test_settings_are_flat() -> None:
    tree = {"name": "x", "algorithm": {"rounds": 3, "params": {}}, "faults": [{"round": 2}]}
    assert dict(settings(tree)) == {
        "name": "x",
        "algorithm.rounds": 3,
        "algorithm.params": {},
        "faults": [{"round": 2}],
    }
    assert dict(settings({})) == {}
