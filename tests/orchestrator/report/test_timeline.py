from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.record.writer import Record
from orchestrator.report import render
from orchestrator.report.timeline import timeline
from orchestrator.results.history import History
from tests.orchestrator.example_run import LOST, ROUND, Example


def rows_of(figure: dict[str, Any], name: str) -> list[str]:
    """The labels of the rows in which a mark has boxes."""
    (mark,) = (mark for mark in figure["marks"] if mark["name"] == name)
    return [figure["y"]["labels"][round((y0 + y1) / 2)] for y0, y1 in zip(mark["y0"], mark["y1"], strict=True)]


def test_hosts_have_rows_above_their_nodes(tmp_path: Path) -> None:
    with History.open(Example(hosts=3, with_faults=False).build(tmp_path)) as history:
        figure, left_out = timeline(history)
    labels = figure["y"]["labels"]
    assert left_out == 0
    assert labels[4:8] == ["host pc-1", "cloud", "edge-0", "device-0-0"]
    assert labels.index("host pc-2") == labels.index("edge-1") - 1
    marks = {mark["name"]: mark for mark in figure["marks"]}
    lost = marks["host lost"]
    assert (lost["x0"], lost["x1"]) == ([pytest.approx(3 * ROUND + 0.7)], [pytest.approx(5 * ROUND + 0.7)])
    assert (rows_of(figure, "host lost")[0], lost["notes"]) == ("host pc-2", [f"host pc-2: lost ({LOST}), 8 s"])
    there = rows_of(figure, "host there")
    assert sorted(there) == [f"host pc-{number}" for number in (1, 2, 2, 3)]
    away = set(rows_of(figure, "restarting"))
    assert away == {"edge-1", *(f"device-1-{number}" for number in range(4))}
    dividers = figure["rules"]
    assert dividers == [labels.index(f"host pc-{number}") - 0.5 for number in (1, 2, 3)]


def test_a_large_run_keeps_the_rows_of_its_hosts(tmp_path: Path) -> None:
    run = Example(edges=5, devices_per_edge=10, rounds=1, with_faults=False, hosts=2).build(tmp_path)
    with History.open(run) as history:
        figure, left_out = timeline(history)
    labels = [label for label in figure["y"]["labels"] if not label.endswith("rounds")]
    assert (labels, left_out) == (["host pc-1", "cloud", "host pc-2"], 55)


def test_the_page_says_what_became_of_hosts(tmp_path: Path) -> None:
    with History.open(Example(hosts=2).build(tmp_path)) as history:
        page = render(history)
    assert page.count(f"the host pc-2 is lost: {LOST}") == 2  # in the log and among the notes
    assert page.count("the host pc-2 is there again") == 2
    assert "device-1-0\nraspberry-pi-4\ndone\non pc-2" in page


def test_the_names_of_hosts_stay_text(tmp_path: Path) -> None:
    run = Example(edges=2, devices_per_edge=1, rounds=1, hosts=2).build(tmp_path)
    (run / "plan.json").write_text((run / "plan.json").read_text().replace("pc-2", "<i>"))
    with History.open(run) as history:
        figure, _ = timeline(history)
        page = render(history)
    assert "host <i>" in figure["y"]["labels"]
    assert "host <i>" not in page


def test_moves_of_nodes_are_in_the_rows_of_both_hosts(tmp_path: Path) -> None:
    run = Example(edges=2, devices_per_edge=1, with_faults=False, hosts=2, rounds_made=4, ending=None).build(tmp_path)
    record = Record.resume(run, 30.0, "killed", 4)
    data = {"node": "edge-1", "from": "pc-2", "to": "pc-1", "reason": "silent; most cores free", "checkpoint": 4.0}
    record.event(41.0, None, "moved", 5, data)
    record.outcome(60.0, {"ended": "failed"})
    record.close()
    said = "edge-1 moves from pc-2 to pc-1, with its checkpoint of 4 s before: silent; most cores free"
    with History.open(run) as history:
        figure, _ = timeline(history)
        began = history.training_began or 0.0
        page = render(history)
    (mark,) = (mark for mark in figure["marks"] if mark["name"] == "node moves")
    assert rows_of(figure, "node moves") == ["host pc-2", "host pc-1", "edge-1"]
    assert set(mark["x0"]) == {round(41.0 - began, 3)}
    assert set(mark["notes"]) == {said}
    assert page.count(said) >= 2  # in the log and among the notes
    assert "on pc-2, then on pc-1" in page
