"""Means over nodes: each counts with its latest report. The expected numbers are computed by hand next to each case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.record.rows import Metric
from orchestrator.record.writer import Record
from orchestrator.results.history import History
from orchestrator.results.latest import LatestReports
from orchestrator.results.means import Bands, Coverage, mean_series, without_samples
from orchestrator.results.story import Story


def report(t: float, node: str, round: int | None, value: float) -> Metric:
    return Metric(t, node, round, "global", "accuracy", value)


Rows = list[tuple[float, str, int | None, float]]  # t, node, round, value
Means = list[tuple[int | None, float, float]]  # round, t, value

CASES: dict[str, tuple[Rows, Means]] = {
    # device-b leaves after round 1 and comes back in round 3 with 0.4
    "a node that is away": (
        [(1, "a", 1, 0.6), (2, "b", 1, 0.2), (3, "a", 2, 0.8), (4, "a", 3, 0.8), (5, "b", 3, 0.4)],
        [(1, 2.0, 0.4), (2, 3.0, 0.5), (3, 5.0, 0.6)],
    ),
    "a node that repeats a round": ([(1, "a", 1, 0.6), (2, "a", 1, 0.7), (3, "b", 1, 0.1)], [(1, 3.0, 0.4)]),
    "a node that is behind": (
        [(1, "a", 1, 0.6), (2, "a", 2, 0.8), (3, "b", 1, 0.2)],
        [(1, 3.0, 0.4), (2, 2.0, 0.5)],
    ),
    "no rounds": (
        [(1, "a", None, 0.6), (2, "b", None, 0.2), (3, "a", None, 1.0)],
        [(None, 1, 0.6), (None, 2, 0.4), (None, 3, 0.6)],
    ),
    "some without a round": ([(1, "a", None, 0.9), (2, "b", 1, 0.2), (3, "a", None, 1.0)], [(1, 2.0, 0.2)]),
}


@pytest.mark.parametrize("case", CASES)
def test_each_node_counts_with_its_latest_report(case: str) -> None:
    rows, expected = CASES[case]
    reports = [report(*row) for row in rows]
    series = mean_series(reports)
    assert [(row.round, row.t) for row in series] == [(round, t) for round, t, _ in expected]
    assert [row.value for row in series] == pytest.approx([value for *_, value in expected])
    latest = LatestReports()
    for each in reports:
        latest.add(each)
    assert latest.mean() == series[-1].value


def test_there_is_no_mean_of_nothing() -> None:
    assert mean_series([]) == []
    assert LatestReports().mean() is None
    assert Bands().by_round() == {}


def test_bands_keep_devices_that_are_away() -> None:
    """Device b reports 0.2 in round 1 only, and device a 0.5 in each of 40 rounds: the mean stays (0.2 + 0.5) / 2."""
    bands = Bands()
    bands.add(report(0.0, "b", 1, 0.2), 1)
    for round in range(1, 41):
        bands.add(report(float(round), "a", round, 0.5), round)
    bands.add(report(50.0, "c", 1, 0.8), 1)  # far too late for round 1
    found = bands.by_round()
    assert list(found) == [*range(1, 41)]
    assert found[1] == pytest.approx((1.0, 0.2, 0.5, 0.35))
    assert found[20] == pytest.approx((20.0, 0.2, 0.5, 0.35))
    assert found[40] == pytest.approx((40.0, 0.2, 0.8, 0.5))


def nodes_of(
    samples: dict[str, int], parent: str | None = "cloud", leads: tuple[str, ...] = ("cloud",)
) -> list[dict[str, Any]]:
    """Nodes below ``parent``, as plan.json has them."""
    nodes = []
    for name, count in samples.items():
        node: dict[str, Any] = {"name": name, "tier": name.partition("-")[0], "leads": name in leads, "samples": count}
        if name != parent:
            node["parent"] = parent
        nodes.append(node)
    return nodes


def test_a_node_counts_if_it_holds_samples_or_leads_nodes_that_do() -> None:
    nodes: dict[str, dict[str, Any]] = {
        "cloud": {},
        "edge-0": {"parent": "cloud"},
        "edge-1": {"parent": "cloud"},
        "device-0-0": {"parent": "edge-0", "samples": 3},
        "device-1-0": {"parent": "edge-1", "samples": 0},
    }
    assert without_samples(nodes) == {"edge-1", "device-1-0"}
    assert without_samples({"cloud": {}, "device-0": {"samples": 0}}) == frozenset()  # programs: nobody knows


def both(path: Path, plan: dict[str, Any], rows: list[tuple[float, str, int, str, float]]) -> list[Story | History]:
    record = Record.create(path, json.dumps(plan), {})
    for t, node, round, name, value in rows:
        record.metric(t, node, round, "global", name, value)
    record.close()
    history = History.open(path)
    return [Story.of(history), history]


def test_a_mean_of_few_clients_says_so(tmp_path: Path) -> None:
    """Of four clients with samples, three have reported; a fifth has no samples."""
    samples = {"cloud": 0, **{f"device-{k}": 10 for k in range(4)}, "device-4": 0}
    rows = [(1.0, "cloud", 1, "accuracy", 0.5), (1.0, "cloud", 1, "clients", 3.0)]
    for facts in both(tmp_path / "run", {"nodes": nodes_of(samples), "links": []}, rows):
        assert facts.coverage() == Coverage(3, 4)
        assert str(facts.coverage()) == "mean of 3 of 4 clients"
    assert str(Coverage(4, 4)) == ""


def test_a_population_is_all_clients(tmp_path: Path) -> None:
    plan = {"nodes": nodes_of({"cloud": 0, "population": 0}), "links": [], "population": {"size": 2000}}
    rows = [(1.0, "cloud", 1, "accuracy", 0.5), (1.0, "cloud", 1, "clients", 40.0)]
    for facts in both(tmp_path / "run", plan, rows):
        assert str(facts.coverage()) == "mean of 40 of 2,000 clients"


def test_an_average_model_is_no_mean_over_clients(tmp_path: Path) -> None:
    plan = {"nodes": nodes_of({"cloud": 0, "device-0": 10}), "links": []}
    for facts in both(tmp_path / "run", plan, [(1.0, "cloud", 1, "accuracy", 0.5)]):
        assert facts.coverage() is None


def test_leading_edges_that_never_reported_are_named(tmp_path: Path) -> None:
    """edge-0 has 0.9 and edge-1 0.3 until it leaves; edge-2 never reports, and edge-3 has no samples."""
    edges = {"edge-0": 5, "edge-1": 5, "edge-2": 5, "edge-3": 0}
    plan = {"nodes": nodes_of(edges, None, tuple(edges)), "links": []}
    rows = [
        (1.0, "edge-0", 1, "accuracy", 0.7),
        (1.0, "edge-1", 1, "accuracy", 0.3),
        (1.0, "edge-3", 1, "accuracy", 0.1),
        (2.0, "edge-0", 2, "accuracy", 0.9),
    ]
    for facts in both(tmp_path / "run", plan, rows):
        assert [row.value for row in facts.global_series("accuracy")] == pytest.approx([0.5, 0.6])
        assert str(facts.coverage()) == "mean of 2 of 3 leading nodes"
        if isinstance(facts, Story):
            assert facts.latest("accuracy") == pytest.approx(0.6)
