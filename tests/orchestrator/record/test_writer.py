from __future__ import annotations

import contextlib
import json
import math
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import RecordError
from orchestrator.record.schema import DATABASE, TABLES
from orchestrator.record.writer import Record, environment
from orchestrator.results.history import History
from orchestrator.results.traffic import volumes
from tests.orchestrator.example_run import Example, plan_of

PLAN = json.dumps(plan_of(Example(edges=1, devices_per_edge=1, with_faults=False)))


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    with contextlib.closing(Record.create(tmp_path / "run", PLAN, {})) as record:
        yield record


def fill_disk(record: Record) -> None:
    """Write until there is no room. SQLite meets its page limit as it would a full disk: with SQLITE_FULL."""
    record._connection.execute("PRAGMA max_page_count = 1")
    for t in range(10_000):
        record.event(float(t), "cloud", "lost", None, {"filler": "x" * 1000})


def test_create_writes_plan_effective_scenario_and_meta(tmp_path: Path) -> None:
    record = Record.create(tmp_path / "run", PLAN, {"effective": {"seed": 7}, "driver": "sim", "python": "mine"})
    record.engine("userspace", {})
    record.close()
    assert (tmp_path / "run" / "plan.json").read_text() == PLAN
    history = History.open(tmp_path / "run")
    assert history.effective == {"seed": 7}
    assert history.meta["python"] == "mine"
    assert "effective" not in history.meta
    assert (history.driver, history.engine) == ("sim", "userspace")


def test_environment_names_versions_and_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["edgebed", "up", "--track", "mlflow:https://ada:secret@tracking:5000/a"])
    found = environment()
    assert found["command"] == ["edgebed", "up", "--track", "mlflow:https://***@tracking:5000/a"]
    assert found["cores"] >= 1
    assert found["memory"] > 2**20
    assert found["packages"]["numpy"]
    assert set(found) >= {"started", "python", "platform", "kernel", "cpu"}


def test_a_directory_holds_one_run(record: Record) -> None:
    with pytest.raises(RecordError, match="already holds a run"):
        Record.create(record.directory, PLAN, {})


def test_a_record_of_another_process_gets_the_same_rows(tmp_path: Path) -> None:
    """One writes on where the other has created the record, and passes its rows on."""
    with contextlib.closing(Record.create(tmp_path / "run", PLAN, {})) as first:
        first.event(1.0, "cloud", "joined", None, {"peer": "edge-0"})
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    with (
        contextlib.closing(Record.reopen(tmp_path / "run")) as record,
        contextlib.closing(Record.reopen(tmp_path / "copy")) as copy,
    ):
        received: list[tuple[str, tuple[object, ...]]] = []
        copy.subscribers.append(lambda table, row: received.append((table, row)))

        def pass_on(table: str, row: tuple[object, ...]) -> None:
            copy.add_row(table, json.loads(json.dumps(row)))

        record.subscribers.append(pass_on)
        record.event(2.0, None, "note", 3, {"text": "grüße", "edge_round": 2})
        record.metric(2.5, "cloud", 1, "global", "accuracy", 0.5)
        record.resources(3.0, "cloud", 0.25, 1000)
        row = {"source": "edge-0", "target": "cloud", "link_class": "edge-cloud", "offered": 3}
        record.counters(3.0, [row])
        record.counters(4.0, [row | {"offered": 7}])
        record.traffic(4.0, "cloud", [TRAFFIC])
        record.state(5.0, "cloud", "running")
        record.note("engine", "kernel")
    assert [table for table, _ in received].count("link") == 1
    rows = contents(tmp_path / "run")
    assert len(rows["event"]) == 2
    assert [growth[3] for growth in rows["link_growth"]] == [3, 4]
    assert contents(tmp_path / "copy") == rows


TRAFFIC = {"peer": "edge-0", "kind": "model", "direction": "sent", "messages": 2, "bytes": 300}


def contents(directory: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows of a record, by table."""
    with contextlib.closing(sqlite3.connect(directory / DATABASE)) as connection:
        return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}


def test_states_from_another_record_are_durable_at_once(record: Record) -> None:
    record.add_row("state", [1.0, "cloud", "running", ""])
    with History.open(record.directory) as history:
        assert [state.state for state in history.states()] == ["running"]


def test_only_an_existing_record_is_reopened(tmp_path: Path) -> None:
    with pytest.raises(RecordError):
        Record.reopen(tmp_path / "none")


def test_others_read_what_is_flushed_while_the_run_continues(record: Record) -> None:
    history = History.open(record.directory)
    record.event(1.0, "cloud", "joined", None, {"peer": "edge-0"})
    assert history.events() == []
    record.flush()
    assert [event.name for event in history.events()] == ["joined"]
    record.state(2.0, "cloud", "running")  # durable at once
    assert [state.state for state in history.states()] == ["running"]


def test_a_closed_record_is_a_single_file(record: Record) -> None:
    record.close()
    record.close()  # once more is no error
    assert not list(record.directory.glob(f"{DATABASE}-*"))


def test_closing_while_someone_reads_is_no_error(record: Record) -> None:
    history = History.open(record.directory)
    history.states()
    record.outcome(3.0, {"ended": "rounds", "error": None})
    record.close()
    assert history.outcome is not None


KILLED = """
import os, signal, sys
from pathlib import Path
from orchestrator.record.writer import Record
record = Record.create(Path(sys.argv[1]), Path(sys.argv[2]).read_text(), {})
for t in range(1000):
    record.event(float(t), "cloud", "joined", t, {})
record.flush()
record.event(1000.0, "cloud", "lost", None, {})
record.fault(1001.0, 1, "crash", "edge-0", "start", 3)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(PLAN)
    child = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "run", tmp_path / "plan.json"], check=False)
    assert child.returncode == -signal.SIGKILL
    history = History.open(tmp_path / "run")
    assert len(history.events("joined")) == 1000
    assert len(history.events("lost")) == 1  # the fault's commit took it along
    assert history.status == "crashed"


def test_a_full_disk_is_reported_once_and_the_run_can_continue_to_its_end(record: Record) -> None:
    record.event(1.0, "cloud", "joined", 1, {})
    record.flush()
    with pytest.raises(RecordError, match="free space") as told:
        fill_disk(record)
    assert str(record.directory) in str(told.value)
    record.state(2.0, "cloud", "done")
    record.flush()
    record.close()
    history = History.open(record.directory)
    assert [event.name for event in history.events()] == ["joined"]


def test_the_outcome_is_tried_again_after_a_full_disk(record: Record) -> None:
    with pytest.raises(RecordError):
        fill_disk(record)
    record._connection.execute("PRAGMA max_page_count = 100000")  # somebody made room
    record.outcome(3.0, {"ended": "failed", "error": "the disk was full"})
    record.close()
    outcome = History.open(record.directory).outcome
    assert outcome is not None
    assert outcome.error == "the disk was full"


def test_a_full_disk_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "plan.json").symlink_to("/dev/full")  # full(4): every write fails with ENOSPC
    with pytest.raises(RecordError, match="free space"):
        Record.create(tmp_path, PLAN, {})


def test_odd_values_from_nodes_are_kept_as_well_as_can_be(record: Record) -> None:
    record.metric(1.0, "cloud", 2**70, "global", "loss", math.nan)
    record.metric(1.0, "cloud", 1, "global", "loss", math.inf)

    class Nameless:
        def __str__(self) -> str:
            raise ValueError("no text")

    odd = {"bytes": b"\x00", "nested": {1: [2**80]}, "half \ud800": ["\udfff"], "nameless": Nameless()}
    rows: list[tuple[Any, ...]] = []
    record.subscribers.append(lambda _table, row: rows.append(row))
    record.event(1.0, "cloud", "bad_\udcff", None, odd)
    record.close()
    with contextlib.closing(sqlite3.connect(record.directory / DATABASE)) as database:
        assert database.execute("SELECT * FROM event").fetchall() == rows  # who listens hears what is recorded
    history = History.open(record.directory)
    first, second = history.metrics("loss")
    assert math.isnan(first.value)
    assert second.value == math.inf
    assert history.events()[0].name == "bad_?"
    assert history.events()[0].data["nested"] == {"1": [2**80]}
    assert history.events()[0].data["half ?"] == ["?"]
    assert history.events()[0].data["nameless"] == "Nameless"


def test_a_record_continues_where_it_had_ended(record: Record) -> None:
    link = {"source": "cloud", "target": "edge-0", "link_class": "edge-cloud"}
    sent = {"peer": "edge-0", "kind": "model", "direction": "sent"}
    for name in ("start", "end"):
        record.event(2.0, "cloud", "round", 1, {"phase": name})
    record.counters(4.0, [{**link, "offered": 7, "delivered": 5, "delivered_bytes": 500}])
    record.traffic(4.0, "cloud", [{**sent, "messages": 3, "bytes": 300}])
    record.outcome(5.0, {"ended": "interrupted"})
    record.close()
    again = Record.resume(record.directory, 5.0, "interrupted", 3)
    with History.open(record.directory) as history:
        assert history.outcome is None
        # The checkpoint held round 3, though the events of rounds 2 and 3 were lost.
        assert history.rounds_done() == 3
    # Engine and node count from 0 again, and are past what they had counted when they are first asked.
    again.counters(8.0, [{**link, "offered": 9, "delivered": 9, "delivered_bytes": 900}])
    again.traffic(8.0, "cloud", [{**sent, "messages": 4, "bytes": 400}])
    again.outcome(9.0, {"ended": "rounds"})
    again.close()
    with History.open(record.directory) as history:
        (counters,), (traffic,) = volumes.link_counters(history), volumes.traffic(history)
        assert (counters.offered, counters.delivered, counters.delivered_bytes) == (16, 14, 1400)
        assert (traffic.messages, traffic.bytes) == (7, 700)
        assert history.outcome is not None
        assert history.outcome.ended == "rounds"
        (event,) = history.events("continued")
        assert (event.t, event.round, event.data) == (5.0, 3, {"ended": "interrupted"})
