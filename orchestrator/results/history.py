"""The reader of a run's record. The run may be running, finished, or cut short at any moment.

Every call queries the database, so a ``History`` of a running run stays up to date. Derived values (such as rounds
from their events) are computed here, in one place, for checks, report, view and summary; what links and flows have
carried, in `carried`.
"""

from __future__ import annotations

import json
import math
import sqlite3
import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from node.files import read_untrusted
from orchestrator.errors import RecordError
from orchestrator.host.directory import RunDirectory
from orchestrator.results.damage import BROKEN, DAMAGE, changed, damaged, foreign, unreadable
from orchestrator.results.fault_spans import fault_spans
from orchestrator.results.record import CONTINUED, DATABASE, INJECTED
from orchestrator.results.rows import (
    Event,
    FaultSpan,
    Metric,
    Outcome,
    ProbeResult,
    Resources,
    Round,
    SensorReading,
    State,
)
from orchestrator.results.schema import (
    APPLICATION_ID,
    COUNTED,
    GROWTH,
    KINDS,
    READABLE,
    SENSORS,
    no_table,
    read_as_growth,
    version,
)
from orchestrator.scenario.language.files import first_comment
from orchestrator.scenario.sections.drivers import LinkKind, kind_of, link_kind

LONGEST_DOCUMENT = 500_000_000  # bytes of a file of a run; the plan of 65,000 nodes has a tenth


class History:
    """The reader of one run directory. `open` raises RecordError if the directory has no readable run.

    A record may be damaged in more ways than can be checked beforehand. So a caller reads a record that may have been
    changed inside a ``with``, which raises RecordError if the record makes no sense.
    """

    def __init__(self, directory: Path, connection: sqlite3.Connection) -> None:
        self.directory = directory
        self._connection = connection
        self._close = weakref.finalize(self, connection.close)
        self._faults: tuple[int, list[FaultSpan]] | None = None

    @classmethod
    def open(cls, directory: Path, plan: dict[str, Any] | None = None) -> Self:
        """Open a run directory for reading. ``plan``: that of an earlier reader, so that plan.json, which never changes
        and may be long, is not read again."""
        database = directory / DATABASE
        if not database.is_file():
            raise RecordError(f"{directory} holds no run: it has no {DATABASE}; `ps` lists the runs there are")
        try:
            connection = sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            empty = connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None
            schema = None if empty else version(connection)
            if application == APPLICATION_ID and schema in READABLE:
                if (odd := no_table(connection)) is not None:
                    connection.close()
                    raise changed(database, odd)
                read_as_growth(connection)
        except BROKEN as error:
            raise unreadable(database, error) from error
        if application != APPLICATION_ID or schema not in READABLE:
            connection.close()
            raise foreign(database, application, schema)
        history = cls(directory, connection)
        if plan is not None:
            history.plan = plan
        return history

    def close(self) -> None:
        self._close()  # once, in the thread that reads: SQLite's connections belong to a thread

    def stand_still(self) -> None:
        """See the record as it is now until it is closed, however it goes on. Its log cannot be shortened meanwhile."""
        try:
            self._connection.execute("BEGIN")
        except sqlite3.Error as error:
            raise unreadable(self.directory / DATABASE, error) from error
        # A transaction begins with its first query (sqlite.org/lang_transaction).
        self.rows("SELECT COUNT(*) FROM meta")

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
        """The run's id."""
        return self.directory.resolve().name

    @cached_property
    def plan(self) -> dict[str, Any]:
        return self._document("plan.json")

    @cached_property
    def effective(self) -> dict[str, Any]:
        """The scenario with every default filled in."""
        return self._document("effective.json") if (self.directory / "effective.json").exists() else {}

    @property
    def meta(self) -> dict[str, Any]:
        """Versions, host, command line, link engine."""
        return {key: json.loads(value) for key, value in self.rows("SELECT key, value FROM meta")}

    @cached_property
    def question(self) -> str:
        """The first comment of the scenario: the question that the run is to answer. Empty if there is none."""
        try:
            text = read_untrusted(self.directory / "scenario.yaml", LONGEST_DOCUMENT).decode("utf-8", errors="replace")
            return first_comment(text)
        except OSError:
            return ""

    @cached_property
    def nodes(self) -> dict[str, dict[str, Any]]:
        """The planned nodes by name, in the plan's order."""
        return {node["name"]: node for node in self.plan.get("nodes", [])}

    @cached_property
    def link_classes(self) -> dict[tuple[str, str], str]:
        """The class of each planned direction (source, target)."""
        return {(link["source"], link["target"]): link["link_class"] for link in self.plan.get("links", [])}

    @cached_property
    def link_kinds(self) -> dict[tuple[str, str], LinkKind]:
        """The kind of each planned direction (source, target)."""
        driver = self.driver
        return {
            (link["source"], link["target"]): link_kind(driver, real=bool(link["profile"].get("real")))
            for link in self.plan.get("links", [])
        }

    @property
    def rounds_planned(self) -> int | None:
        rounds = (self.plan.get("stop") or {}).get("rounds")
        return int(rounds) if rounds is not None else None

    @property
    def driver(self) -> str:
        return str(self.meta.get("driver") or self.plan.get("driver") or "")

    @property
    def simulated(self) -> bool:
        """Whether nodes, links and time were modelled."""
        return kind_of(self.driver).simulated

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
        if self.outcome is not None:
            return "finished"
        return "running" if RunDirectory(self.directory).holder() is not None else "crashed"

    @property
    def outcome(self) -> Outcome | None:
        rows = self.rows("SELECT t, facts FROM outcome ORDER BY rowid DESC LIMIT 1")
        if not rows:
            return None
        facts = json.loads(rows[0][1])
        return Outcome(rows[0][0], str(facts.get("ended", "failed")), facts.get("error"), facts.get("wall_seconds"))

    @property
    def seconds(self) -> float:
        """The duration of the run; the duration so far, if it has not ended."""
        counts = (counted.growth if self._schema >= GROWTH else counted.view for counted in COUNTED)
        tables = ("event", "metric", "state", "fault", "probe", *counts, "resources", "outcome")
        latest = " UNION ALL ".join(f"SELECT MAX(t) AS t FROM {table}" for table in tables)
        return float(self.rows(f"SELECT COALESCE(MAX(t), 0) FROM ({latest})")[0][0])

    @property
    def training_began(self) -> float | None:
        """The time at which the nodes were told to start. Fault times in the scenario count from it."""
        began = self.events("training")
        if began:
            return began[0].t
        starts = [each.start for each in self.rounds()]
        return min(starts) if starts else None

    @property
    def training_ended(self) -> float:
        """The time at which the last round of a leading node ended; the run's last time, if none was finished."""
        return max((each.end for each in self.rounds() if each.end and each.node in self.leaders), default=self.seconds)

    # The events and measurements

    def events(self, *names: str, node: str | None = None) -> list[Event]:
        """Events in the order of recording; of these names, or all; of one node, or all."""
        which = f"AND name IN ({', '.join('?' * len(names))})" if names else ""
        columns = "t, node, name, round, edge_round, data"
        query = f"SELECT {columns} FROM event WHERE coalesce(?, node) IS node {which} ORDER BY rowid"
        rows = self.rows(query, node, *names)
        return [Event(t, node, name, round, json.loads(data), edge) for t, node, name, round, edge, data in rows]

    def metrics(self, name: str | None, scope: str | None = None, node: str | None = None) -> list[Metric]:
        """Metrics in the order of reporting; of one name, scope and node, or of all."""
        rows = self.rows(
            "SELECT t, node, round, scope, name, value FROM metric WHERE coalesce(?, name) IS name"
            " AND coalesce(?, scope) IS scope AND coalesce(?, node) IS node",
            *(name, scope, node),
        )
        return [
            Metric(t, node, round, scope, name, math.nan if value is None else value)
            for t, node, round, scope, name, value in rows
        ]

    def metric_names(self) -> list[tuple[str, str]]:
        """The scope and name of every reported metric, in alphabetical order."""
        return [(scope, name) for scope, name in self.rows("SELECT DISTINCT scope, name FROM metric ORDER BY 1, 2")]

    def states(self, node: str | None = None) -> list[State]:
        """All state changes in order; of one node, or of all."""
        rows = self.rows("SELECT t, node, state, detail FROM state WHERE coalesce(?, node) IS node", node)
        return [State(*row) for row in rows]

    def current_states(self) -> dict[str, State]:
        """The latest state of each planned node; "planned" for a node without recorded states."""
        latest = {name: State(0.0, name, "planned", "") for name in self.nodes}
        return latest | {state.node: state for state in self.states()}

    def probes(self) -> list[ProbeResult]:
        columns = ", ".join(ProbeResult._fields[:-1])
        kind = "COALESCE(kind, 'emulated')" if self._schema >= KINDS else "'emulated'"
        return [ProbeResult(*row) for row in self.rows(f"SELECT {columns}, {kind} FROM probe")]

    def resources(self, node: str | None = None) -> list[Resources]:
        """What nodes used, in the order of recording; one node, or all."""
        return [Resources(*row) for row in self.rows("SELECT * FROM resources WHERE coalesce(?, node) IS node", node)]

    def sensors(self) -> list[SensorReading]:
        """What hosts told about themselves, in the order of recording. Records of version 2 have none."""
        if self._schema < SENSORS:
            return []
        return [SensorReading(*row) for row in self.rows("SELECT * FROM sensor")]

    def faults(self) -> list[FaultSpan]:
        """The course of every fault: the planned ones in the plan's order, then those by hand.

        A report asks for them from many places, so they are read again only if the record has changed."""
        changes = self.rows("PRAGMA data_version")[0][0]  # another number after what any other connection committed
        if self._faults is None or self._faults[0] != changes:
            planned, by_hand = self.plan.get("faults", []), self.events(INJECTED)
            self._faults = changes, fault_spans(planned, by_hand, self.rows("SELECT * FROM fault"), self.nodes)
        return list(self._faults[1])

    def rounds(self) -> list[Round]:
        """The rounds of all coordinators in order of their start. A round that a restart repeats is listed again."""
        rounds: list[Round] = []
        open_rounds: dict[str, int] = {}
        for event in self.events("round", "round_abandoned"):
            if event.node is None or event.round is None:
                continue
            number = event.round, event.edge_round
            if event.name == "round" and event.data.get("phase") == "start":
                open_rounds[event.node] = len(rounds)
                rounds.append(Round(event.node, event.round, event.t, None, False, event.edge_round))
            elif (index := open_rounds.get(event.node)) is not None and rounds[index].number == number:
                if event.name == "round_abandoned":
                    rounds[index] = rounds[index]._replace(abandoned=True)
                elif event.name == "round":
                    rounds[index] = rounds[index]._replace(end=event.t)
        return rounds

    @cached_property
    def leaders(self) -> tuple[str, ...]:
        """The nodes that lead the training: the cloud, or all edges if there is none."""
        return tuple(name for name, node in self.nodes.items() if node.get("leads"))

    def rounds_done(self) -> int:
        """The number of rounds that every leading node has finished, including unrecorded rounds of a checkpoint."""
        kept = max((event.round or 0 for event in self.events(CONTINUED)), default=0)
        done: defaultdict[str, set[int]] = defaultdict(lambda: set(range(1, kept + 1)))
        for event in self.events("resumed"):
            done[event.node or ""].update(range(1, (event.round or 0) + 1))
        for each in self.rounds():
            if each.end is not None:
                done[each.node].add(each.round)
        return min((len(done[leader]) for leader in self.leaders), default=0)

    def global_series(self, name: str) -> list[Metric]:
        """A metric on the global test set, by round: the leading node's, or the mean over several leading nodes.

        A mean has the time of the last node's report, and its ``node`` is empty.
        """
        rows = [metric for metric in self.metrics(name, "global") if metric.node in self.leaders]
        if len(self.leaders) == 1:
            return rows
        rounds: defaultdict[int | None, dict[str, Metric]] = defaultdict(dict)
        for metric in rows:
            rounds[metric.round][metric.node] = metric
        return [
            Metric(
                max(m.t for m in of.values()), "", round, "global", name, sum(m.value for m in of.values()) / len(of)
            )
            for round, of in rounds.items()
        ]

    def edge_series(self, name: str) -> dict[str, list[Metric]]:
        """A metric of each edge: on the global test set if the edge reports that, else on its own test set."""
        return self.tier_series(name, "edge", "global", "own")

    def tier_series(self, name: str, tier: str, *scopes: str) -> dict[str, list[Metric]]:
        """A metric of each node of a tier, of the first of these scopes that the node reports."""
        series: dict[str, list[Metric]] = {}
        for scope in reversed(scopes):
            by_node: defaultdict[str, list[Metric]] = defaultdict(list)
            for metric in self.metrics(name, scope):
                if self.nodes.get(metric.node, {}).get("tier") == tier:
                    by_node[metric.node].append(metric)
            series |= by_node
        return {node: series[node] for node in self.nodes if node in series}

    def after(self, table: str, columns: Sequence[str], rowid: int, limit: int) -> list[tuple[Any, ...]]:
        """The rows of a table that were recorded after ``rowid``, at most ``limit`` of them: the row's own id, then
        these columns. A reader that comes again with the last id reads each row once."""
        listed = ", ".join(("rowid", *columns))
        return self.rows(f"SELECT {listed} FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT ?", rowid, limit)

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """The rows of a query. Its tables of growth are there for records of older versions, too (`read_as_growth`)."""
        try:
            return self._connection.execute(query, parameters).fetchall()
        except BROKEN as error:
            raise unreadable(self.directory / DATABASE, error) from error

    @property
    def _schema(self) -> int:
        return version(self._connection)

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
