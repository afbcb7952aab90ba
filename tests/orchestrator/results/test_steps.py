"""Steps of reports without rounds: every export and plot counts them alike. A program prints 0.5, 0.6 and 0.7, and a
node with rounds reports next to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.exports.files import csv_store
from orchestrator.exports.scalars import scalars
from orchestrator.record.writer import Record
from orchestrator.report.figures import curves
from orchestrator.results.history import History
from orchestrator.results.steps import StepCounter
from orchestrator.results.story import Story
from orchestrator.results.tables import TABLES
from orchestrator.sweep.curves import curve_of
from orchestrator.verbs.results.compare import run_overview

VALUES = (0.5, 0.6, 0.7)
STEPS = [1, 2, 3]


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    nodes = [{"name": "cloud", "tier": "cloud", "leads": True}, {"name": "edge-0", "tier": "edge"}]
    plan = {"name": "prog", "algorithm": {"name": "program"}, "driver": "sim", "seed": 1, "nodes": nodes, "links": []}
    record = Record.create(tmp_path / "run", json.dumps(plan), {})
    record.event(0.0, None, "training", None, {})
    for t, value in enumerate(VALUES, 1):
        record.metric(float(t), "cloud", None, "global", "accuracy", value)
        record.metric(float(t), "edge-0", 10 * t, "own", "accuracy", value)
    record.close()
    with History.open(tmp_path / "run") as opened:
        yield opened


def test_scalars(history: History) -> None:
    found = scalars(history)
    assert [each.step for each in found if each.tag == "accuracy/global/cloud"] == STEPS
    assert [each.step for each in found if each.tag == "accuracy/own/edge-0"] == [10, 20, 30]


@pytest.mark.parametrize("table", ["accuracy", "metrics"])
def test_tables(history: History, table: str, tmp_path: Path) -> None:
    rows = [row._asdict() for row in TABLES[table].read(history)]
    assert [row["step"] for row in rows if row["node"] == "cloud"] == STEPS
    assert [row["step"] for row in rows if row["node"] == "edge-0"] == [10, 20, 30]
    assert {row["round"] for row in rows if row["node"] == "cloud"} == {None}
    written = Path(csv_store(str(tmp_path / "csv")).write(history)) / f"{table}.csv"
    assert "step" in written.read_text().splitlines()[0].split(",")


def test_figures_of_report_and_live_page(history: History) -> None:
    for facts in (history, Story.of(history)):
        drawn = {mark["name"]: mark["x"] for mark in curves(facts, "accuracy", against="rounds")["marks"]}
        assert list(drawn["global"]) == STEPS
        assert list(drawn["edge-0"]) == [10, 20, 30]


def test_sweeps_and_comparisons(history: History) -> None:
    points = list(zip(map(float, STEPS), VALUES, strict=True))
    assert curve_of(history.global_series("accuracy"), 0.0).by_round == points
    assert list(run_overview(history).accuracy.items()) == points


def test_a_step_never_changes_afterwards() -> None:
    """A report without a round in a series with rounds belongs to the round before it."""
    counter = StepCounter()
    assert [counter.step(round) for round in (None, None, 5, None, 6)] == [1, 2, 5, 5, 6]
