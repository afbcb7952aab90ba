from __future__ import annotations

import contextlib
import sqlite3
import statistics
from pathlib import Path

import pytest

from orchestrator.results.history import History
from orchestrator.scenario.reading import parse
from orchestrator.sweep.quantities import Comparison, Figures, Result, Spread, compare, figures, spreads
from orchestrator.sweep.reading import Combination, Target
from orchestrator.sweep.statistics import holm
from tests.orchestrator.example_run import MODEL, ROUND, Example


def reaching(accuracy: str, **whose: str) -> Target:
    return Target.model_validate({"accuracy": accuracy, **whose})


def of(tmp_path: Path, example: Example, target: Target | None) -> Figures:
    with History.open(example.build(tmp_path / "run")) as history:
        return figures(history, target)


def test_figures_of_the_example(tmp_path: Path) -> None:
    found = of(tmp_path, Example(with_faults=False), reaching("70%"))
    assert found["rounds"] == 10
    assert found["seconds"] == pytest.approx(10 * ROUND - 0.1)
    assert found["wall_seconds"] == pytest.approx(6.5 + 10 * ROUND + 0.4)
    assert found["final.global"] <= found["best.global"] < 0.91
    assert found["final.edges"] < 0.85
    assert "final.clients" not in found  # the example's devices have no test sets of their own
    assert (found["to_target.reached"], found["to_target.rounds"]) == (1, 5)
    assert found["to_target.seconds"] == pytest.approx(5 * ROUND - 0.12)
    # 3 edges send a model each way in each round; the first 3 are gone when the counters are first read, 0.7 % are lost
    model = MODEL // 1448 * 1514
    assert found["bytes_per_round.edge-cloud"] == pytest.approx((10 * 6 - 3) * model / 10, rel=0.01)
    # reached 0.38 s after one reading and 0.62 s before the next, by which the 3 models of round 6 were sent
    assert found["to_target.bytes.edge-cloud"] == pytest.approx((5 * 6 - 3 + 0.38 * 3) * model, rel=0.01)


def test_a_target_on_own_test_sets_or_none(tmp_path: Path) -> None:
    with History.open(Example().build(tmp_path / "run")) as history:
        assert not [name for name in figures(history, None) if name.startswith("to_target")]
        never = figures(history, reaching("99%"))
        assert (never["to_target.reached"], never["to_target.rounds"]) == (0, 10)
        assert never["to_target.seconds"] == never["seconds"]
        assert never["to_target.bytes.edge-cloud"] == 10 * never["bytes_per_round.edge-cloud"]
        on_edges = figures(history, reaching("70%", scope="own", of="edges"))
        assert on_edges["to_target.rounds"] > figures(history, reaching("70%"))["to_target.rounds"]


def test_what_personalised_edges_came_to(tmp_path: Path) -> None:
    found = of(tmp_path, Example(settings={"data": {"personalisation": "20%"}}), None)
    assert found["personalisation.within.10"] == found["best.edges"]  # the example has 10 rounds


def test_values_in_a_scope_of_the_algorithm(tmp_path: Path) -> None:
    """The last report of each node counts: the mean of 0.25 and 0.75, not of 9, 0.25 and 0.75."""
    run = Example().build(tmp_path / "run")
    with contextlib.closing(sqlite3.connect(run / "run.db")) as database, database:
        reports = [("edge-0", 1, 9.0), ("edge-0", 2, 0.25), ("edge-1", 2, 0.75)]
        database.executemany("INSERT INTO metric VALUES (9.0, ?, ?, 'generator', 'divergence', ?)", reports)
    with History.open(run) as history:
        assert figures(history, None)["reported.generator.divergence"] == 0.5


def test_a_run_that_never_trained(tmp_path: Path) -> None:
    found = of(tmp_path, Example(rounds_made=0, ending="failed"), reaching("50%"))
    assert found["rounds"] == 0
    assert not [name for name in found if name.startswith(("final", "best", "to_target", "bytes"))]


def test_mean_and_standard_deviation() -> None:
    # of 1, 2, 6: mean 3, squared distances 4 + 1 + 9 = 14, over n - 1 = 2
    found = spreads([{"a": 1.0, "b": 5.0}, {"a": 2.0}, {"a": 6.0}])
    assert found.keys() == {"a", "b"}
    assert (found["a"].mean, found["a"].count) == (3.0, 3)
    assert found["a"].deviation == pytest.approx(7**0.5)
    assert found["b"] == Spread(5.0, None, 1)
    assert spreads([]) == {}


def to_target(rounds: float, reached: bool) -> Figures:
    return {"to_target.rounds": rounds, "to_target.reached": float(reached)}


def test_runs_that_never_reached_the_target_are_in_its_mean() -> None:
    # rounds 10 and 26, and the end after 20: 26 is cut at 20, so 50/3 at least
    found = spreads([to_target(10, True), to_target(26, True), to_target(20, False)])
    assert found["to_target.rounds"] == Spread(50 / 3, statistics.stdev([10, 20, 20]), 3, censored=1)
    assert found["to_target.reached"] == Spread(2 / 3, statistics.stdev([1, 1, 0]), 3)


def compared(cases: dict[str, list[Figures]]) -> dict[tuple[str, str], Comparison]:
    """The comparisons with the first case, by case and figure; seeds count from 1."""
    scenario, first = parse("algorithm: {name: hierfavg}", "base.yaml"), next(iter(cases))
    results = [
        Result(Combination(case, seed, (), scenario, None if case == first else first), None, "pass", None, run)
        for case, runs in cases.items()
        for seed, run in enumerate(runs, start=1)
    ]
    return {(each.case, each.figure): each for each in compare(results)}


def test_cases_are_compared_with_the_first_over_common_seeds() -> None:
    def final(*values: float) -> list[Figures]:
        return [{"final.global": value} for value in values]

    found = compared({"a": final(0.7, 0.8, 0.9), "b": final(0.71, 0.82, 0.93), "c": final(0.9, 0.8), "d": final(0.5)})
    b, c, d = (found[case, "final.global"] for case in "bcd")
    assert b.reference == "a"
    assert b.difference.by_seed == pytest.approx({1: 0.01, 2: 0.02, 3: 0.03})
    assert c.difference.by_seed == pytest.approx({1: 0.2, 2: 0.0})
    assert d.difference.by_seed == pytest.approx({1: -0.2})
    assert d.p_holm is d.difference.low is None
    assert b.difference.p_value is not None
    assert c.difference.p_value is not None
    assert [b.p_holm, c.p_holm] == holm([b.difference.p_value, c.difference.p_value])


def test_a_comparison_to_the_target_ends_where_the_first_run_of_both_ended_without() -> None:
    slow = [to_target(20, False), to_target(18, True)]
    found = compared({"a": slow, "b": [to_target(4, True), to_target(30, True)], "c": [to_target(20, False)] * 2})
    assert found["b", "to_target.rounds"].difference.by_seed == {1: -16, 2: 2}  # 4 - 20, and 20 of 30 - 18
    assert found["c", "to_target.rounds"].difference.by_seed == {1: 0, 2: 2}
    assert compared({"a": slow[:1], "b": [to_target(20, False)]}) == {}  # neither reached it
