"""The reader of a run's record: its rows. The run may be running, finished, or cut short at any moment.

Every call queries the database, so the reader of a running run stays up to date. What follows from the rows is computed
in `orchestrator.results`.
"""

from __future__ import annotations

import json
import math
import sqlite3
import weakref
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from node.files import read_untrusted
from orchestrator.errors import RecordError
from orchestrator.record.damage import BROKEN, DAMAGE, changed, damaged, foreign, unreadable
from orchestrator.record.directory import RunDirectory
from orchestrator.record.rows import (
    Event,
    FaultPhase,
    Metric,
    Outcome,
    ProbeResult,
    Resources,
    SensorReading,
    State,
)
from orchestrator.record.schema import (
    APPLICATION_ID,
    COUNTED,
    DATABASE,
    LONGEST_DOCUMENT,
    SCHEMA_VERSION,
    no_table,
)


class Reader:
    """The reader of one run directory. `open` raises RecordError if the directory has no readable run. A record may be
    damaged in more ways than can be checked beforehand. So a caller reads a record that may have been changed inside a
    ``with``, which raises RecordError if the record is inconsistent."""

    def __init__(self, directory: Path, connection: sqlite3.Connection) -> None:
        self.directory = directory
        self._connection = connection
        self._close = weakref.finalize(self, connection.close)

    @classmethod
    def open(cls, directory: Path, plan: dict[str, Any] | None = None) -> Self:
        """Open a run directory for reading. ``plan``: as read earlier; plan.json never changes and may be long."""
        database = directory / DATABASE
        if not database.is_file():
            raise RecordError(f"{directory} holds no run: it has no {DATABASE}; `ps` lists the runs there are")
        try:
            connection = sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            empty = connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None
            if empty:
                schema = None
            else:
                schema = connection.execute("PRAGMA user_version").fetchone()[0]
            odd = no_table(connection)
        except BROKEN as error:
            raise unreadable(database, error) from error
        if (application, schema) != (APPLICATION_ID, SCHEMA_VERSION):
            connection.close()
            raise foreign(database, application, schema)
        if odd is not None:
            connection.close()
            raise changed(database, odd)
        reader = cls(directory, connection)
        if plan is not None:
            reader.plan = plan
        return reader

    def close(self) -> None:
        self._close()  # once, in the thread that reads: SQLite's connections belong to a thread

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        """Turn an error of the body that a damaged record can cause into a RecordError."""
        self.close()
        if isinstance(error, DAMAGE):
            raise damaged(self.directory, error) from error

    # The plan

    @property
    def run(self) -> str:
        return self.directory.resolve().name

    @cached_property
    def plan(self) -> dict[str, Any]:
        return self._document("plan.json")

    @cached_property
    def effective(self) -> dict[str, Any]:
        """The scenario with every default filled in."""
        if (self.directory / "effective.json").exists():
            return self._document("effective.json")
        return {}

    @property
    def meta(self) -> dict[str, Any]:
        """Versions, host, command line, link engine."""
        rows = self.rows("SELECT key, value FROM meta")
        return {key: json.loads(value) for key, value in rows}

    @property
    def driver(self) -> str:
        return str(self.meta.get("driver") or self.plan.get("driver") or "")

    @property
    def engine(self) -> str:
        """The link engine that is used; before one is chosen, the requested engine."""
        return str(self.meta.get("engine") or self.plan.get("engine") or "")

    @property
    def tcp(self) -> dict[str, str]:
        """The TCP settings of nodes by name; empty if none were recorded, as in a simulation."""
        tcp = self.meta.get("tcp")
        return dict(tcp) if isinstance(tcp, dict) else {}

    # The run's status

    @property
    def status(self) -> Literal["running", "finished", "crashed"]:
        """The run's status. "crashed": the orchestrator is gone and did not write an outcome."""
        if self.outcome is None and RunDirectory(self.directory).holder() is not None:
            return "running"
        if self.outcome is None:
            return "crashed"
        return "finished"  # also if the holder has ended in order since the first look

    @property
    def outcome(self) -> Outcome | None:
        rows = self.rows("SELECT t, facts FROM outcome ORDER BY rowid DESC LIMIT 1")
        if not rows:
            return None
        return outcome_of(*rows[0])

    @property
    def seconds(self) -> float:
        """The duration of the run; the duration so far, if it has not ended."""
        counts = (counted.growth for counted in COUNTED)
        tables = ("event", "metric", "state", "fault", "probe", *counts, "resources", "outcome")
        latest = " UNION ALL ".join(f"SELECT MAX(t) AS t FROM {table}" for table in tables)
        return float(self.rows(f"SELECT COALESCE(MAX(t), 0) FROM ({latest})")[0][0])

    # The events and measurements

    def events(self, *names: str, node: str | None = None) -> list[Event]:
        """Events in the order of recording; of these names, or all; of one node, or all."""
        which = ""
        if names:
            marks = ", ".join("?" * len(names))
            which = f"AND name IN ({marks})"
        columns = "t, node, name, round, edge_round, data"
        query = f"SELECT {columns} FROM event WHERE coalesce(?, node) IS node {which} ORDER BY rowid"
        events = []
        for t, at, name, round, edge_round, data in self.rows(query, node, *names):
            events.append(Event(t, at, name, round, json.loads(data), edge_round))
        return events

    def metrics(
        self,
        name: str | None,
        scope: str | None = None,
        node: str | None = None,
    ) -> list[Metric]:
        """Metrics in the order of reporting; of one name, scope and node, or of all."""
        rows = self.rows(
            "SELECT t, node, round, scope, name, value FROM metric WHERE coalesce(?, name) IS name"
            " AND coalesce(?, scope) IS scope AND coalesce(?, node) IS node",
            name,
            scope,
            node,
        )
        metrics = []
        for t, reporter, round, data, metric, value in rows:
            if value is None:
                value = math.nan
            metrics.append(Metric(t, reporter, round, data, metric, value))
        return metrics

    def metric_names(self) -> list[tuple[str, str]]:
        """The scope and name of every reported metric, in alphabetical order."""
        rows = self.rows("SELECT DISTINCT scope, name FROM metric ORDER BY 1, 2")
        return [(scope, name) for scope, name in rows]

    def states(self, node: str | None = None) -> list[State]:
        """All state changes in order; of one node, or of all."""
        rows = self.rows("SELECT t, node, state, detail FROM state WHERE coalesce(?, node) IS node", node)
        return [State(*row) for row in rows]

    def probes(self) -> list[ProbeResult]:
        """The probes in the order of recording. The last columns may be missing in a record of an older edgebed."""
        present = {name for _, name, *_ in self.rows("PRAGMA table_info(probe)")}
        columns = ", ".join(name for name in ProbeResult._fields if name in present)
        rows = self.rows(f"SELECT {columns} FROM probe")
        results = []
        for row in rows:
            result = ProbeResult(*row)
            if result.saturated is not None:  # a number in SQLite
                result = result._replace(saturated=bool(result.saturated))
            results.append(result)
        return results

    def resources(self, node: str | None = None) -> list[Resources]:
        """What nodes used, in the order of recording; one node, or all."""
        rows = self.rows("SELECT * FROM resources WHERE coalesce(?, node) IS node", node)
        return [Resources(*row) for row in rows]

    def sensors(self) -> list[SensorReading]:
        """What hosts reported about themselves, in the order of recording."""
        return [SensorReading(*row) for row in self.rows("SELECT * FROM sensor")]

    def fault_phases(self) -> list[FaultPhase]:
        """The rows of the table fault, in the order of recording."""
        return [FaultPhase(*row) for row in self.rows("SELECT * FROM fault")]

    def changes(self) -> int:
        """Another number after what any other connection has committed."""
        number: int = self.rows("PRAGMA data_version")[0][0]
        return number

    @property
    def packets(self) -> int | None:
        return self.rows("SELECT SUM(delivered) FROM link_growth")[0][0]  # type: ignore[no-any-return]

    def after(
        self,
        table: str,
        columns: Sequence[str],
        rowid: int,
        limit: int,
    ) -> list[tuple[Any, ...]]:
        """The rows of a table that were recorded after ``rowid``, at most ``limit`` of them: the row's own id, then
        these columns. A reader that comes again with the last id reads each row once."""
        listed = ", ".join(("rowid", *columns))
        return self.rows(f"SELECT {listed} FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT ?", rowid, limit)

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query, parameters).fetchall()
        except BROKEN as error:
            raise unreadable(self.directory / DATABASE, error) from error

    def stream(self, query: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, without holding them all."""
        try:
            yield from self._connection.execute(query)
        except BROKEN as error:
            raise unreadable(self.directory / DATABASE, error) from error

    def _document(self, name: str) -> dict[str, Any]:
        path = self.directory / name
        try:
            document = json.loads(read_untrusted(path, LONGEST_DOCUMENT))
        except (OSError, ValueError, RecursionError) as error:
            raise RecordError(f"{path} cannot be read ({error}): the run directory is damaged") from error
        if not isinstance(document, dict):
            raise RecordError(f"{path} is not a JSON object: the run directory is damaged")
        return document


def outcome_of(t: float, facts: str) -> Outcome:
    """A row of the table outcome."""
    recorded = json.loads(facts)
    ended = str(recorded.get("ended", "failed"))
    return Outcome(t, ended, recorded.get("error"), recorded.get("wall_seconds"))
