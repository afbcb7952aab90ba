"""The writer of a run's record: it writes the events of a run to the run's directory as they happen, durably.

``runs/<id>/`` holds scenario.yaml (as given), effective.json (with every default filled in), plan.json, and run.db.
run.db is one SQLite database in write-ahead mode: others can read it during the run, and a killed writer loses nothing
that was committed. ``orchestrator.record.reader`` is the reader.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import re
import sqlite3
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from node.resources import processors
from orchestrator.errors import RecordError
from orchestrator.record.events.base import RecordedEvent
from orchestrator.record.events.run import Continued
from orchestrator.record.rows import ProbeResult
from orchestrator.record.schema import (
    APPLICATION_ID,
    CHANNEL_COUNTS,
    DATABASE,
    FLOWS,
    INSERT,
    LINKS,
    CounterTable,
    Totals,
    make_tables,
)
from orchestrator.record.versions import installed_version

_PACKAGES = ("edgebed", "numpy", "pyzmq", "torch", "torchvision")
Row = Mapping[str, Any]
Values = tuple[Any, ...]  # of a row
HostReading = tuple[str, str, str, float | None, str]  # quantity, source, scope, value, detail
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")  # of a URL, such as that of `--track`: others may read the record


class Record:
    """The writer of one run. Every ``t`` is in seconds since the run started.

    States, faults and the outcome are durable immediately, everything else with the next ``flush``. The first write
    that fails raises RecordError. Later writes are dropped silently, so that the run can be shut down in order.

    Each of ``subscribers`` is called with the table and the values of each row as they were written. None may raise.
    """

    def __init__(self, directory: Path, connection: sqlite3.Connection) -> None:
        self.directory = directory
        self.subscribers: list[Callable[[str, Values], None]] = []
        self._connection = connection
        self._broken = False
        self._ids = {counted.each: _ids(connection, counted) for counted in (LINKS, FLOWS)}
        self._links = Totals()
        self._channels = Totals()
        self._flows: defaultdict[str, Totals] = defaultdict(Totals)  # by node

    @classmethod
    def create(cls, directory: Path, plan_json: str, meta: Mapping[str, Any]) -> Record:
        """Start a record in ``directory``, which must not have one yet. ``plan_json`` is the text of plan.json.
        ``meta`` is merged over the facts of ``environment``. Its key "effective", the scenario with every default
        filled in, becomes effective.json."""
        if (directory / DATABASE).exists():
            raise RecordError(f"{directory} already holds a run: give the new one a directory of its own")
        facts = {**environment(), **meta}
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "plan.json").write_text(plan_json, encoding="utf-8")
            effective = json.dumps(facts.pop("effective", {}), indent=2, default=str) + "\n"
            (directory / "effective.json").write_text(effective, encoding="utf-8")
            connection = _begun(directory)  # one transaction: the whole schema, or none
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            make_tables(connection)
            rows = [(key, _json(value)) for key, value in facts.items()]
            connection.executemany(INSERT["meta"], rows)
            connection.commit()
        except (OSError, sqlite3.Error) as error:
            raise _refused(directory, error) from error
        return cls(directory, connection)

    @classmethod
    def reopen(cls, directory: Path) -> Record:
        """Continue to write the record in ``directory`` as it is."""
        try:
            connection = _begun(directory)
        except sqlite3.Error as error:
            raise _refused(directory, error) from error
        return cls(directory, connection)

    @classmethod
    def resume(cls, directory: Path, t: float, ended: str, round: int) -> Record:
        """Reopen the record of a run that ended at ``t`` and continues after ``round``. The outcome is removed and kept
        in an event. All counters of links and nodes restart at 0."""
        try:
            connection = _begun(directory)
            make_tables(connection)
            connection.execute("DELETE FROM outcome")
            continued = Continued(ended)
            data = _json(continued.to_json())
            connection.execute(INSERT["event"], (t, None, continued.NAME, round, None, data))
            connection.commit()
        except sqlite3.Error as error:
            raise _refused(directory, error) from error
        return cls(directory, connection)

    def note(self, key: str, value: Any) -> None:
        """Record a fact about the whole run; it replaces an earlier note with the same key."""
        self._write("meta", [(key, _json(value))])

    def engine(self, name: str, tcp: Mapping[str, str]) -> None:
        """Record the chosen link engine, and the TCP settings of nodes (none if nothing speaks TCP)."""
        self.note("engine", name)
        if tcp:
            self.note("tcp", dict(tcp))

    def event(
        self,
        t: float,
        node: str | None,
        name: str,
        round: int | None,
        data: Row,
    ) -> None:
        """Record an event that a node reports, or the orchestrator (None). ``edge_round`` in the data has its own
        column."""
        rest = {key: value for key, value in data.items() if key != "edge_round"}
        edge_round = data.get("edge_round")
        self._write("event", [(t, node, name, round, edge_round, _json(rest))])

    def add_event(
        self,
        t: float,
        event: RecordedEvent,
        round: int | None = None,
        node: str | None = None,
    ) -> None:
        """Record an event of the run, or of one of its nodes."""
        self.event(t, node, event.NAME, round, event.to_json())

    def metric(
        self,
        t: float,
        node: str,
        round: int | None,
        scope: str,
        name: str,
        value: float,
    ) -> None:
        """Record a metric that a node reports. ``scope`` is the data it was taken on: "global", "own" or "train"."""
        self._write("metric", [(t, node, round, scope, name, value)])

    def state(self, t: float, node: str, state: str, detail: str = "") -> None:
        """Record a node's new state, such as planned, running, paused, crashed, restarting, left, done or failed."""
        self._write("state", [(t, node, state, detail)], at_once=True)

    def fault(
        self,
        t: float,
        fault_id: int,
        action: str,
        target: str,
        phase: str,
        round: int | None,
        detail: str = "",
    ) -> None:
        """Record that a planned fault took effect ("start"), was undone ("end") or was not possible ("skipped")."""
        row = (t, fault_id, action, target, phase, round, detail)
        self._write("fault", [row], at_once=True)

    def probe(self, result: ProbeResult) -> None:
        """Record one measured quantity of a link."""
        self._write("probe", [result])

    def counters(self, t: float, rows: Iterable[Row]) -> None:
        """Record what links have carried: source, target, link_class, the totals of ``COUNTERS``, and kind."""
        grown = []
        for row in rows:
            ends = (row["source"], row["target"])
            totals = [row.get(counter, 0) for counter in LINKS.counts]
            kind = row.get("kind", "emulated")
            thing = (*ends, row["link_class"], kind)
            link = self._id(LINKS, thing)
            growth = self._links.growth(ends, totals)
            grown.append((None, t, link, *growth))
        self._write(LINKS.growth, grown)

    def channels(self, t: float, rows: Iterable[Row]) -> None:
        """Record what channels of shared media have carried for each member: channel, member, totals of packets, bytes,
        seconds (occupied by them) and overflowed, and the queued_bytes at present. What is at rest is left out."""
        grown = []
        for row in rows:
            key = (row["channel"], row["member"])
            totals = [row[count] for count in CHANNEL_COUNTS]
            growth = self._channels.growth(key, totals)
            queued_bytes = row["queued_bytes"]
            if any(growth) or queued_bytes:
                grown.append((t, *key, *growth, queued_bytes))
        self._write("channel", grown)

    def traffic(self, t: float, node: str, rows: Iterable[Row]) -> None:
        """Record a node's traffic: peer, kind, direction, total messages and bytes, if these have grown."""
        grown = []
        flows = self._flows[node]
        for row in rows:
            key = (node, row["peer"], row["kind"], row["direction"])
            totals = [row[count] for count in FLOWS.counts]
            growth = flows.growth(key, totals)
            if any(growth) or key not in self._ids[FLOWS.each]:
                flow = self._id(FLOWS, key)
                grown.append((None, t, flow, *growth))
        self._write(FLOWS.growth, grown)

    def traffic_from_zero(self, node: str) -> None:
        """Take note that a node's process has started and counts its traffic from 0."""
        self._flows.pop(node, None)

    def resources(
        self,
        t: float,
        node: str,
        cpu_seconds: float,
        rss: int,
        pss: int | None = None,
    ) -> None:
        """Record the usage of a node's process: CPU since it started, resident and proportional memory in bytes."""
        self._write("resources", [(t, node, cpu_seconds, rss, pss)])

    def sensors(self, t: float, host: str, readings: Iterable[HostReading]) -> None:
        """Record readings of a host ('' is this one). A value of None could not be read; ``detail`` says why."""
        self._write("sensor", [(t, host, *reading) for reading in readings])

    def add_row(self, table: str, row: Iterable[Any]) -> None:
        """Record a row as the subscriber of another record of the same run has received it."""
        self._write(table, [tuple(row)], at_once=table in ("state", "fault"))

    def outcome(self, t: float, facts: Row) -> None:
        """Record how the run ended: "ended" (such as "rounds", "accuracy", "after", "bytes", "interrupted" or
        "failed"), and "error". This is tried even after a failed write: one row may fit on a full disk."""
        was_broken = self._broken
        self._broken = False
        try:
            self._write("outcome", [(t, _json(facts))], at_once=True)
        except RecordError:
            if not was_broken:
                raise

    def flush(self) -> None:
        """Make all writes so far durable. The run calls this at least twice a second."""
        if not self._broken:
            with self._refusals():
                self._connection.commit()

    def close(self) -> None:
        """Close the record; later writes are dropped. The database of an ended run is a single file."""
        try:
            self.flush()
            with contextlib.suppress(sqlite3.Error):  # if it has readers, it stays in write-ahead mode
                self._connection.execute("PRAGMA journal_mode = DELETE")
        finally:
            self._broken = True
            self._connection.close()

    def _write(
        self,
        table: str,
        rows: list[Values],
        *,
        at_once: bool = False,
    ) -> None:
        if self._broken:
            return
        rows = [tuple(map(_storable, row)) for row in rows]
        with self._refusals():
            self._connection.executemany(INSERT[table], rows)
            if at_once:
                self._connection.commit()
        for subscriber in self.subscribers:
            for row in rows:
                subscriber(table, row)

    def _id(self, counted: CounterTable, thing: Values) -> int:
        """The number of a thing that is counted, which is recorded with its keys and facts when it is new."""
        ids = self._ids[counted.each]
        key_count = len(counted.keys)
        keys = thing[:key_count]
        if keys not in ids:
            ids[keys] = len(ids) + 1
            self._write(counted.each, [(ids[keys], *thing)])
        return ids[keys]

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            self._broken = True
            with contextlib.suppress(sqlite3.Error):
                self._connection.rollback()
            raise _refused(self.directory, error) from error


def _ids(connection: sqlite3.Connection, counted: CounterTable) -> dict[tuple[str, ...], int]:
    """The numbers of the things that are counted, by their keys."""
    columns = ", ".join(counted.keys)
    rows = connection.execute(f"SELECT id, {columns} FROM {counted.each}")
    return {tuple(keys): id for id, *keys in rows}


def environment() -> dict[str, Any]:
    """The environment of a run: versions, kernel, its TCP, processor, memory (bytes) and the command line."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": [_CREDENTIALS.sub("***@", word) for word in sys.argv],
        "python": platform.python_version(),
        "packages": {name: installed_version(name) for name in _PACKAGES},
        "platform": platform.platform(),
        "kernel": platform.release(),
        "cpu": _processor(),
        "cores": processors(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        for line in lines:
            if line.startswith(("model name", "Model")):
                _, _, model = line.partition(":")
                return model.strip()
    return platform.processor() or platform.machine()


def _begun(directory: Path) -> sqlite3.Connection:
    """Open the database of a run for its single writer, and start a transaction."""
    # The thread of the signal handler writes the last rows, if the run has a thread of its own.
    connection = sqlite3.connect(directory / DATABASE, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")  # outlives a killed writer: sqlite.org/wal.html
    connection.execute("BEGIN")
    return connection


def _json(value: Any) -> str:
    """JSON of a value, in which `_storable` finds broken UTF-16: there are no escapes."""
    return json.dumps(value, default=_text, skipkeys=True, ensure_ascii=False)


def _text(value: object) -> str:
    """The text of a value that JSON lacks. A plug-in's own type may have none."""
    try:
        return str(value)
    except Exception:
        return type(value).__name__


def _storable(value: Any) -> Any:
    """Convert values that nodes report but SQLite cannot store: integers over 64 bits, broken UTF-16."""
    if isinstance(value, str):
        if value.isascii():
            return value
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(value)
    return value


def _refused(directory: Path, error: OSError | sqlite3.Error) -> RecordError:
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT) or "full" in str(error):
        remedy = "free space on its file system"
    else:
        remedy = "check that its disk is well and may be written to"
    return RecordError(f"the record in {directory} cannot be written ({error}): {remedy}, then run again")
