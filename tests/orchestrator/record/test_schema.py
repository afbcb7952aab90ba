"""The record is lean, and its views give totals."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from orchestrator.record.schema import COUNTERS, DATABASE, Totals
from orchestrator.record.writer import Record
from orchestrator.results.history import History
from orchestrator.results.traffic import volumes
from tests.orchestrator.example_run import Example


@pytest.fixture(scope="module")
def present(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with faults, that was interrupted after five rounds and resumed."""
    path = Example(rounds=5, ending=None).build(tmp_path_factory.mktemp("runs") / "present")
    go_on(path)
    return path


def go_on(path: Path) -> None:
    """Resume a run: its links and nodes count from 0 again."""
    ends = {"source": "edge-0", "target": "cloud", "link_class": "edge-cloud"}
    sent = {"peer": "cloud", "kind": "model", "direction": "sent"}
    with contextlib.closing(Record.resume(path, 30.0, "killed", 5)) as record:
        for t, count in ((31.0, 7), (32.0, 900_000)):  # first below, then above what was counted before
            record.counters(t, [{**ends, **dict.fromkeys(COUNTERS, count), "kind": "emulated"}])
            record.traffic(t, "edge-0", [{**sent, "messages": count, "bytes": 10 * count}])
        record.outcome(33.0, {"ended": "rounds"})


def test_the_views_give_totals(present: Path) -> None:
    with History.open(present) as history, contextlib.closing(sqlite3.connect(present / DATABASE)) as database:
        for name, found in (("counters", volumes.link_counters(history)), ("traffic", volumes.traffic(history))):
            keys = "source, target" if name == "counters" else "node, peer, kind, direction"
            first = "offered" if name == "counters" else "messages"
            rows = database.execute(f"SELECT {keys}, MAX({first}) FROM {name} GROUP BY {keys}")
            latest = {tuple(key): count for *key, count in rows}
            assert latest == {tuple(row[: keys.count(",") + 1]): getattr(row, first) for row in found}


def test_counts_that_have_fallen_restarted() -> None:
    totals = Totals()
    read = [totals.growth("a", each) for each in ([3, 300], [5, 500], [5, 500], [2, 900], [4, 901])]
    assert read == [(3, 300), (2, 200), (0, 0), (2, 900), (2, 1)]
    assert totals.growth("b", [1, 1]) == (1, 1)


def size(path: Path) -> int:
    """The bytes of a record without those that are free."""
    with contextlib.closing(sqlite3.connect(path / DATABASE)) as database:
        database.execute("VACUUM")
    return (path / DATABASE).stat().st_size


def test_a_record_takes_less_than_half_of_a_table_of_totals(tmp_path: Path) -> None:
    """20 links that carry something each second, and nodes that tell all their traffic with each heartbeat, though half
    of it has not grown: as a run of the driver namespaces does."""
    record = Record.create(tmp_path / "run", "{}", {})
    ends = [(f"device-0-{index}", "edge-0") for index in range(10)]
    links = [{"source": one, "target": other, "link_class": "device-edge"} for one, other in ends]
    links += [{**link, "source": link["target"], "target": link["source"]} for link in links]
    for second in range(1, 601):
        counts = {"offered": 4 * second, "offered_bytes": 900 * second, "delivered": 4 * second}
        record.counters(float(second) + 0.123, [{**link, **counts, "delivered_bytes": 900 * second} for link in links])
        for index in range(10):
            rows = [
                {"peer": "edge-0", "kind": kind, "direction": way, "messages": 1 + second * grows, "bytes": 99 * second}
                for kind, grows in (("beat", 1), ("framing", 1))
                for way in ("sent", "received")
            ]
            still = [
                {**row, "kind": kind, "messages": 3, "bytes": 300} for row in rows[:2] for kind in ("hello", "model")
            ]
            record.traffic(second + 0.1 * index, f"device-0-{index}", [*rows, *still])
    record.close()
    lean = size(tmp_path / "run")
    with contextlib.closing(sqlite3.connect(tmp_path / "run" / DATABASE)) as database:
        for view in ("counters", "traffic"):
            database.execute(f"CREATE TABLE totals_of_{view} AS SELECT * FROM {view}")
        database.commit()
    assert 2 * lean < size(tmp_path / "run") - lean
