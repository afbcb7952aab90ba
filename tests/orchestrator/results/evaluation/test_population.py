"""What the summary, the report and sweeps say of the clients of a population."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.record.writer import Record
from orchestrator.report.clients import client_figures, client_rows
from orchestrator.results.evaluation.population import clients_available, kinds, parts, population, seen_by_round
from orchestrator.results.history import History
from tests.texts import containing

POPULATION = {"size": 10, "asynchronous": False, "selected": 2, "selection": {"name": "oort", "params": {}}}
PLAN = json.dumps({"population": POPULATION, "nodes": []})


def part(client: int, outcome: str = "counted", seconds: float = 2.0, **more: Any) -> Mapping[str, Any]:
    own = {"client": f"device-{client}", "outcome": outcome, "began": 0.0, "seconds": seconds}
    return {**own, "hardware": "phone", "link": "wifi"} | more


@pytest.fixture
def history(tmp_path: Path) -> History:
    record = Record.create(tmp_path / "run", PLAN, {})
    first = part(1), part(2, seconds=4.0, link="lte"), part(3, "slow", link="lte")
    second = part(1, seconds=3.0), part(4, "away", hardware=None), part(5, "unused")
    for round, found in ((1, first), (2, second)):
        for each in found:
            record.event(10.0 * round, "population", "client", round, each)
    record.event(20.0, "cloud", "client", 2, {"of": "an algorithm of somebody else"})
    record.close()
    return History.open(tmp_path / "run")


def test_the_summary_counts_clients_and_parts(history: History) -> None:
    assert population(history) == {
        "clients": 10,
        "asynchronous": False,
        "selected": 2,
        "selection": "oort",
        "seen": 2,  # clients 1 and 2
        "share_seen": 0.2,
        "asked": 6,
        "outcomes": {"counted": 3, "slow": 1, "away": 1, "unused": 1, "unfinished": 0},
        "seconds": 3.0,  # the median of 2, 4 and 3
    }


def test_clients_seen_after_each_round(history: History) -> None:
    assert seen_by_round(parts(history)) == {1: 2, 2: 2}


def test_parts_by_link_and_hardware(history: History) -> None:
    assert kinds(parts(history), "link") == [("lte", 2, 1, 4.0), ("wifi", 4, 2, 2.5)]
    assert [(kind.name, kind.asked) for kind in kinds(parts(history), "hardware")] == [("drawn", 1), ("phone", 5)]


def test_the_report_has_a_section_on_clients(history: History) -> None:
    told = client_rows(history)
    assert told is not None
    assert told["saying"] == containing("10 clients, 2 (20.0%) answered", "oort")
    assert told["outcomes"] == [
        ("answered in time", 3),
        ("dropped as slow", 1),
        ("went away", 1),
        ("answered, not used", 1),
    ]
    figures = client_figures(history)
    (seen,) = figures["clients-seen"]["marks"]
    assert (seen["x"], seen["y"]) == ([1, 2], [0.2, 0.2])
    assert [mark["y"] for mark in figures["clients-outcomes"]["marks"]] == [[2, 1], [1, 0], [0, 1], [0, 1]]


def test_an_asynchronous_answer_belongs_to_the_version_that_it_made(tmp_path: Path) -> None:
    """Of the parts that began from version 1, one counted two versions later."""
    plan = json.dumps({"population": POPULATION | {"asynchronous": True}, "nodes": []})
    record = Record.create(tmp_path / "run", plan, {})
    for t, round, each in (
        (1.0, 1, part(1, staleness=0)),
        (2.0, 2, part(2, staleness=0)),
        (3.0, 1, part(3, staleness=2)),
        (4.0, 2, part(4, "unfinished", staleness=None)),
    ):
        record.event(t, "population", "client", round, each)
    record.close()
    history = History.open(tmp_path / "run")
    assert seen_by_round(parts(history)) == {1: 1, 2: 2, 3: 3}
    told = client_rows(history)
    assert told is not None
    assert told["saying"].endswith("Selection: oort, 2 at a time.")
    assert told["outcomes"] == [("answered in time", 3), ("unfinished when the cloud ended", 1)]


def test_a_run_without_a_population_says_nothing_of_it(tmp_path: Path) -> None:
    Record.create(tmp_path / "run", '{"nodes": []}', {}).close()
    with History.open(tmp_path / "run") as other:
        assert population(other) is None
        assert client_rows(other) is None
        assert not any(figure["marks"] for figure in client_figures(other).values())


@pytest.mark.parametrize(
    ("first", "change", "verdict", "detail"),
    [
        (0.0, 40.0, "pass", containing("clients came", "stays.csv from 40 s")),
        (60.0, 0.0, "pass", containing("clients came", "stays.csv from 0 s")),
        (36000.0, 0.0, "unknown", containing("no row of stays.csv", "at 10 h", "after 1 min 40 s")),
        (None, 0.0, "unknown", containing("stays.csv took effect: no")),
        (0.0, 3.6e6, "unknown", containing("no row of stays.csv", "first at 1000 h", "after 1 min 40 s")),
        (0.0, None, "unknown", containing("no row of stays.csv", "never", "after 1 min 40 s")),
    ],
)
@pytest.mark.parametrize("key", ["population", "clients"])
def test_a_trace_without_a_row_that_took_effect_is_unknown(
    tmp_path: Path, key: str, first: float | None, change: float | None, verdict: str, detail: str
) -> None:
    trace = {"trace": "stays.csv", "sha256": "", "first": first, "change": change}
    record = Record.create(tmp_path / "run", json.dumps({key: {"availability": trace}, "nodes": []}), {})
    record.event(5.0, None, "training", None, {})
    record.outcome(105.0, {"ended": "rounds", "error": None})
    record.close()
    assert clients_available(History.open(tmp_path / "run")) == (verdict, detail)
