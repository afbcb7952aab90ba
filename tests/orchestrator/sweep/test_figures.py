from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.results.record.history import History
from orchestrator.sweep.figures import Figures, Spread, figures, spreads
from orchestrator.sweep.reading import Target
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
    assert found["to_target.rounds"] == 5
    assert found["to_target.seconds"] == pytest.approx(5 * ROUND - 0.12)
    # 3 edges send a model each way in each round; the first 3 are gone when the counters are first read, 0.7 % are lost
    model = MODEL // 1448 * 1514
    assert found["bytes_per_round.edge-cloud"] == pytest.approx((10 * 6 - 3) * model / 10, rel=0.01)
    # reached 0.38 s after one reading and 0.62 s before the next, by which the 3 models of round 6 were sent
    assert found["to_target.bytes.edge-cloud"] == pytest.approx((5 * 6 - 3 + 0.38 * 3) * model, rel=0.01)


def test_a_target_on_own_test_sets_or_none(tmp_path: Path) -> None:
    with History.open(Example().build(tmp_path / "run")) as history:
        assert not [name for name in figures(history, None) if name.startswith("to_target")]
        assert not [name for name in figures(history, reaching("99%")) if name.startswith("to_target")]
        on_edges = figures(history, reaching("70%", scope="own", of="edges"))
        assert on_edges["to_target.rounds"] > figures(history, reaching("70%"))["to_target.rounds"]


def test_what_personalised_edges_came_to(tmp_path: Path) -> None:
    found = of(tmp_path, Example(settings={"data": {"personalisation": "20%"}}), None)
    assert found["personalisation.within.10"] == found["best.edges"]  # the example has 10 rounds


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
