from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.record.schema import COUNTERS
from orchestrator.record.writer import Record
from orchestrator.results.evaluation.targets import accuracy_series, bytes_between, clients, first_at, reached
from orchestrator.results.history import History


def node(name: str, leads: bool = False, **more: Any) -> dict[str, Any]:
    return {"name": name, "tier": name.partition("-")[0], "leads": leads, **more}


def recorded(
    directory: Path, names: Sequence[str], rows: Sequence[tuple[float, str, int | None, str, float]]
) -> Record:
    """A run whose training began at 10 s, with accuracies: t, node, round, scope, value."""
    plan = {"name": "judged", "nodes": [node(name, name == "cloud") for name in names], "links": []}
    record = Record.create(directory, json.dumps(plan), {})
    record.event(10.0, None, "training", None, {})
    for t, name, round, scope, value in rows:
        record.metric(t, name, round, scope, "accuracy", value)
    return record


def read(record: Record) -> History:
    record.close()
    return History.open(record.directory)


def counters(record: Record, t: float, source: str, link_class: str, delivered: int) -> None:
    row = dict.fromkeys(COUNTERS, 0) | {"delivered": delivered // 100, "delivered_bytes": delivered}
    record.counters(t, [{"source": source, "target": "cloud", "link_class": link_class, **row}])


ROWS = (
    (12.0, "device-0-0", 1, "own", 0.5),
    (13.0, "device-0-1", 1, "own", 0.1),
    (14.0, "edge-0", 1, "own", 0.4),
    (15.0, "cloud", 1, "global", 0.2),
    (16.0, "device-0-0", 2, "own", 0.9),  # device-0-1 is away
    (18.0, "edge-0", 2, "own", 0.6),
    (19.0, "cloud", 2, "global", 0.7),
)
NAMES = ("cloud", "edge-0", "device-0-0", "device-0-1")


def test_each_scope_is_judged_by_its_own_nodes(tmp_path: Path) -> None:
    with read(recorded(tmp_path, NAMES, ROWS)) as history:
        of_clients = accuracy_series(history, "clients")
        # round 1: (0.5 + 0.1) / 2; round 2: (0.9 + 0.1) / 2, since device-0-1 last reported 0.1
        assert [(row.round, row.t) for row in of_clients] == [(1, 13.0), (2, 16.0)]
        assert [row.value for row in of_clients] == pytest.approx([0.3, 0.5])
        assert [row.value for row in accuracy_series(history, "edges")] == [0.4, 0.6]
        assert [row.value for row in accuracy_series(history, "global")] == [0.2, 0.7]


def test_reports_without_rounds_are_steps_of_their_own(tmp_path: Path) -> None:
    """As those of programs that print only ``{"accuracy": 0.5, "scope": "own"}``."""
    rows = [(12.0, "device-0-0", None, "own", 0.5), (13.0, "device-0-1", None, "own", 0.1)]
    with read(recorded(tmp_path, NAMES, rows)) as history:
        series = accuracy_series(history, "clients")
        assert [(row.t, row.round) for row in series] == [(12.0, None), (13.0, None)]
        assert [row.value for row in series] == pytest.approx([0.5, 0.3])  # (0.5 + 0.1) / 2
        found = reached(history, series, 0.5)
        assert found is not None
        assert (found.round, found.seconds) == (None, 2.0)


def test_nodes_without_samples_do_not_count(tmp_path: Path) -> None:
    """device-1 holds no samples, so its accuracy is that of a model that it never trained."""
    nodes = [node("cloud", leads=True), node("device-0", samples=20), node("device-1", samples=0)]
    record = Record.create(tmp_path, json.dumps({"nodes": nodes, "links": []}), {})
    for name, value in (("device-0", 0.8), ("device-1", 0.1)):
        record.metric(1.0, name, 1, "own", "accuracy", value)
    with read(record) as history:
        assert [row.value for row in accuracy_series(history, "clients")] == [0.8]


def test_edges_are_the_clients_where_there_are_no_devices(tmp_path: Path) -> None:
    rows = [(11.0, "edge-0", 1, "own", 0.8), (11.5, "edge-1", 1, "own", 0.6)]
    with read(recorded(tmp_path, ("cloud", "edge-0", "edge-1"), rows)) as history:
        assert clients(history) == ["edge-0", "edge-1"]
        assert [row.value for row in accuracy_series(history, "clients")] == pytest.approx([0.7])


def test_a_round_that_was_restarted_counts_with_its_last_report(tmp_path: Path) -> None:
    rows = [(11.0, "device-0-0", 1, "own", 0.2), (12.0, "device-0-0", 1, "own", 0.4)]
    with read(recorded(tmp_path, NAMES, rows)) as history:
        assert [(row.t, row.value) for row in accuracy_series(history, "clients")] == [(12.0, 0.4)]


def test_what_it_took_to_reach_an_accuracy(tmp_path: Path) -> None:
    record = recorded(tmp_path, NAMES, ROWS)
    for t, delivered in ((10.0, 400), (14.0, 1400), (20.0, 2600)):  # 400 bytes were for probes, before the training
        counters(record, t, "edge-0", "edge-cloud", delivered)
        counters(record, t, "device-0-0", "device-edge", delivered * 10)
    with read(record) as history:
        found = reached(history, accuracy_series(history, "global"), 0.7)
        assert found is not None
        assert (found.round, found.seconds) == (2, 9.0)
        # at 19 s: 1400 + 5/6 of the 1200 between 14 and 20 s, less the 400 before
        assert found.bytes == {"edge-cloud": 2000, "device-edge": 20000}
        assert reached(history, accuracy_series(history, "global"), 0.71) is None
        assert first_at(accuracy_series(history, "clients"), 0.3) == accuracy_series(history, "clients")[0]


def test_counters_that_restart_are_added_up(tmp_path: Path) -> None:
    record = recorded(tmp_path, NAMES, ())
    for t, delivered in ((10.0, 0), (11.0, 1000), (12.0, 300)):  # the node came back with a new link
        counters(record, t, "edge-0", "edge-cloud", delivered)
    with read(record) as history:
        assert bytes_between(history, 10.0, 12.0) == {"edge-cloud": 1300}
        assert bytes_between(history, 11.0, 11.5) == {"edge-cloud": 150}


def test_a_run_without_counters_has_no_bytes(tmp_path: Path) -> None:
    with read(recorded(tmp_path, NAMES, ROWS)) as history:
        assert bytes_between(history, 10.0, 20.0) == {}
