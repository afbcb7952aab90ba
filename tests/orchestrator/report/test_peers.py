from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.record.writer import Record
from orchestrator.report import render
from orchestrator.report.peers import COLOURS, HEIGHT, ROWS, meetings, own_accuracy, peers
from orchestrator.results.history import History
from tests.orchestrator.example_run import Example, plan_of

BEGAN = 10.0


def history(
    folder: Path,
    edges: int,
    met: list[tuple[float, str, int, dict[str, float]]],
    scores: list[tuple[int, str, str, float]] | None = None,
) -> History:
    """A run in which edges met: (time of training, edge, round, shares of others), and accuracies that were reported:
    (round, edge, scope, accuracy)."""
    record = Record.create(folder, json.dumps(plan_of(Example(edges=edges, devices_per_edge=1, with_faults=False))), {})
    record.event(BEGAN, None, "training", None, {})
    for t, edge, round, shares in met:
        queue = {peer: [round, 1, 0.25, 0.125] for peer in shares}
        record.event(BEGAN + t, edge, "peers", round, {"queue": queue, "asked": list(shares), "shares": shares})
    for round, edge, scope, accuracy in scores or []:
        record.metric(BEGAN + 5, edge, round, scope, "accuracy", accuracy)
    record.event(BEGAN + 20, "edge-0", "round", 2, {"phase": "end"})
    record.close()
    return History.open(folder)


def pieces(found: dict[str, Any]) -> list[tuple[str, float, float, float, float]]:
    """Who was learned from, from when to when, and between which heights."""
    return [
        (mark["name"], *bounds)
        for mark in found["marks"]
        for bounds in zip(mark["x0"], mark["x1"], mark["y0"], mark["y1"], strict=True)
    ]


def test_a_block_lasts_until_the_next_meeting_and_is_as_high_as_its_shares(tmp_path: Path) -> None:
    """edge-0 met at 2 s and at 8 s of training, and the run went on until 20 s; its row is row 0."""
    met: list[Any] = [
        (2.0, "edge-0", 1, {"edge-1": 0.2, "edge-2": 0.3}),
        (5.0, "edge-2", 1, {}),
        (8.0, "edge-0", 2, {"edge-2": 0.5}),
    ]
    run = history(tmp_path, 3, met)
    top = -HEIGHT / 2
    expected = [
        ("edge-1", 2.0, 8.0, top, top + 0.2 * HEIGHT),
        ("edge-2", 2.0, 8.0, top + 0.2 * HEIGHT, top + 0.5 * HEIGHT),
        ("edge-2", 8.0, 20.0, top, top + 0.5 * HEIGHT),
    ]
    figure = peers(run)
    assert [piece[0] for piece in pieces(figure)] == [piece[0] for piece in expected]
    for found, wanted in zip(pieces(figure), expected, strict=True):
        assert found[1:] == pytest.approx(wanted[1:], abs=1e-3)
    assert figure["y"]["labels"] == ["edge-0", "edge-2"]
    assert figure["marks"][0]["notes"] == [
        "edge-0, round 1: 20.0% from edge-1 (version 1, age 1, KL 0.2500, weight 0.125)"
    ]


def test_a_round_that_was_restarted_counts_once(tmp_path: Path) -> None:
    run = history(tmp_path, 2, [(2.0, "edge-0", 1, {}), (9.0, "edge-0", 1, {"edge-1": 0.5})])
    (events,) = meetings(run).values()
    assert [event.t for event in events] == [BEGAN + 9.0]


def test_each_edge_keeps_its_colour_in_all_rows(tmp_path: Path) -> None:
    met = [(float(k), f"edge-{k}", 1, {f"edge-{j}": 0.1 for j in range(4) if j != k}) for k in range(4)]
    figure = peers(history(tmp_path, 4, met))
    assert [mark["name"] for mark in figure["marks"]] == [f"edge-{k}" for k in range(4)]
    assert [mark["colour"] for mark in figure["marks"]] == list(COLOURS[:4])
    assert [len(mark["x0"]) for mark in figure["marks"]] == [3] * 4


def test_many_edges_are_a_table_of_means(tmp_path: Path) -> None:
    """edge-0 took half of its model from edge-1 once and nothing the other time."""
    met: list[tuple[float, str, int, dict[str, float]]] = [(float(k), f"edge-{k}", 1, {}) for k in range(ROWS + 1)]
    run = history(tmp_path, ROWS + 1, [*met, (30.0, "edge-0", 2, {"edge-1": 0.5})])
    figure = peers(run)
    (table,) = figure["marks"]
    assert (table["x0"], table["y0"], table["opacity"]) == ([0.5], [-0.5], [0.25])  # one field: column 1 of row 0
    assert table["notes"] == ["edge-0 took 25.0% from edge-1 on average"]
    assert len(figure["x"]["labels"]) == len(figure["y"]["labels"]) == ROWS + 1


def test_own_accuracy_is_that_of_edges_that_met(tmp_path: Path) -> None:
    scores = [
        (1, "edge-0", "own", 0.5),
        (1, "edge-0", "global", 0.1),
        (2, "edge-0", "own", 0.75),
        (1, "edge-1", "own", 0.9),
    ]
    run = history(tmp_path, 3, [(2.0, "edge-0", 1, {"edge-1": 0.5}), (9.0, "edge-0", 2, {})], scores)
    (mark,) = own_accuracy(run)["marks"]
    assert (mark["name"], mark["x"], mark["y"]) == ("edge-0", [1, 2], [0.5, 0.75])


def test_the_page_shows_it_only_where_edges_met(tmp_path: Path) -> None:
    with_peers = render(history(tmp_path / "with", 2, [(2.0, "edge-0", 1, {"edge-1": 0.5})]))
    without = render(history(tmp_path / "without", 2, []))
    assert "Who learned from whom" in with_peers
    assert '<figure class="plot" id="peers">' in with_peers
    assert "Who learned from whom" not in without
    assert '"queue"' not in with_peers  # the log leaves these events out


def test_names_stay_text(tmp_path: Path) -> None:
    name = "</script><script>alert(1)</script>"
    page = render(history(tmp_path, 2, [(2.0, "edge-0", 1, {name: 0.5})]))
    assert "<script>alert" not in page
