"""The tables of a record.

Counts of links and of messages only grow, so a row has what was added since the row before it: most of these numbers
are small, and SQLite stores a small number in few bytes. What a row belongs to is in a table of its own, written once.
The views ``counters`` and ``traffic`` give the totals.

A column that is added at the end of a table and may be NULL leaves the version as it is: records without it are read,
and get it when their run is resumed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable, Sequence
from operator import sub
from typing import Any, NamedTuple, TypeVar

APPLICATION_ID = 0x65646264  # "edbd": identifies edgebed's databases (sqlite.org/pragma.html#pragma_application_id)
SCHEMA_VERSION = 6
DATABASE = "run.db"  # the name of its file
LONGEST_DOCUMENT = 500_000_000  # bytes of a file of a run; the plan of 65,000 nodes has a tenth

COUNTERS = (
    "offered",
    "offered_bytes",
    "delivered",
    "delivered_bytes",
    "lost",
    "overflowed",
    "duplicated",
    "corrupted",
    "reordered",
    "cut_dropped",
)

CHANNEL_COUNTS = ("packets", "bytes", "seconds", "overflowed")


def _insertion(table: str, columns: int) -> str:
    """The statement that adds a row to a table."""
    values = ", ".join("?" * columns)
    return f"INSERT OR REPLACE INTO {table} VALUES ({values})"


_KIND = "kind TEXT NOT NULL"  # a column of tables with figures of links: a `LinkKind`
TABLES = {
    "meta": ("key TEXT PRIMARY KEY", "value TEXT NOT NULL"),
    "event": (
        "t REAL NOT NULL",
        "node TEXT",
        "name TEXT NOT NULL",
        "round INTEGER",
        "edge_round INTEGER",
        "data TEXT NOT NULL",
    ),
    "metric": (
        *("t REAL NOT NULL", "node TEXT NOT NULL", "round INTEGER"),
        *("scope TEXT NOT NULL", "name TEXT NOT NULL", "value REAL"),
    ),
    "state": ("t REAL NOT NULL", "node TEXT NOT NULL", "state TEXT NOT NULL", "detail TEXT NOT NULL"),
    "fault": (
        *("t REAL NOT NULL", "fault INTEGER NOT NULL", "action TEXT NOT NULL", "target TEXT NOT NULL"),
        *("phase TEXT NOT NULL", "round INTEGER", "detail TEXT NOT NULL"),
    ),
    "probe": (
        *("t REAL NOT NULL", "source TEXT NOT NULL", "target TEXT NOT NULL", "link_class TEXT NOT NULL"),
        *("quantity TEXT NOT NULL", "asked REAL", "measured REAL", "low REAL", "high REAL"),
        *("verdict TEXT NOT NULL", "detail TEXT NOT NULL", _KIND, "expected REAL"),
        *("busy REAL", "saturated INTEGER", "measured_in TEXT"),
    ),
    "link": (
        *("id INTEGER PRIMARY KEY", "source TEXT NOT NULL", "target TEXT NOT NULL", "link_class TEXT NOT NULL"),
        _KIND,
    ),
    "link_growth": (
        *("id INTEGER PRIMARY KEY", "t REAL NOT NULL", "link INTEGER NOT NULL"),
        *(f"{counter} INTEGER NOT NULL" for counter in COUNTERS),
    ),
    "channel": (
        *("t REAL NOT NULL", "channel TEXT NOT NULL", "member TEXT NOT NULL"),
        *("packets INTEGER NOT NULL", "bytes INTEGER NOT NULL", "seconds REAL NOT NULL"),
        *("overflowed INTEGER NOT NULL", "queued_bytes INTEGER NOT NULL"),
    ),
    "flow": (
        *("id INTEGER PRIMARY KEY", "node TEXT NOT NULL", "peer TEXT NOT NULL", "kind TEXT NOT NULL"),
        "direction TEXT NOT NULL",
    ),
    "flow_growth": (
        *("id INTEGER PRIMARY KEY", "t REAL NOT NULL", "flow INTEGER NOT NULL"),
        *("messages INTEGER NOT NULL", "bytes INTEGER NOT NULL"),
    ),
    "resources": (
        *("t REAL NOT NULL", "node TEXT NOT NULL", "cpu_seconds REAL NOT NULL", "rss INTEGER NOT NULL", "pss INTEGER"),
    ),
    "sensor": (
        *("t REAL NOT NULL", "host TEXT NOT NULL", "quantity TEXT NOT NULL", "source TEXT NOT NULL"),
        *("scope TEXT NOT NULL", "value REAL", "detail TEXT NOT NULL"),
    ),
    "outcome": ("t REAL NOT NULL", "facts TEXT NOT NULL"),
}
INSERT = {table: _insertion(table, len(columns)) for table, columns in TABLES.items()}


class CounterTable(NamedTuple):
    """What is counted: ``each`` is the table of the things that have counts, ``view`` gives the totals."""

    each: str
    keys: tuple[str, ...]  # that identify a thing
    facts: tuple[str, ...]  # what else is known of a thing
    counts: tuple[str, ...]
    view: str

    @property
    def growth(self) -> str:
        """The table of what was added."""
        return f"{self.each}_growth"

    @property
    def named(self) -> str:
        """What was added, with the names of the things: for FROM."""
        return f"{self.growth} JOIN {self.each} ON {self.each}.id = {self.growth}.{self.each}"


LINKS = CounterTable(
    each="link",
    keys=("source", "target"),
    facts=("link_class", "kind"),
    counts=COUNTERS,
    view="counters",
)
FLOWS = CounterTable(
    each="flow",
    keys=("node", "peer", "kind", "direction"),
    facts=(),
    counts=("messages", "bytes"),
    view="traffic",
)
COUNTED = (LINKS, FLOWS)


N = TypeVar("N", int, float)


class Totals:
    """The latest totals of things that are counted."""

    def __init__(self) -> None:
        self._last: dict[Hashable, Sequence[Any]] = {}

    def growth(self, key: Hashable, totals: Sequence[N]) -> tuple[N, ...]:
        """What was added to the totals of a thing. If any total has fallen, all have restarted at 0."""
        before = self._last.get(key)
        self._last[key] = totals
        if before is None:
            return tuple(totals)
        added = tuple(map(sub, totals, before))
        has_restarted = min(added) < 0
        return tuple(totals) if has_restarted else added


def make_tables(connection: sqlite3.Connection) -> None:
    """Create missing tables, views and the index, add the columns that an older record of this version lacks, and set
    the version of the schema."""
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    for table, columns in TABLES.items():
        listed = ", ".join(columns)
        connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({listed})")
        present = connection.execute(f"PRAGMA table_info({table})").fetchall()
        missing = columns[len(present) :]
        for column in missing:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
    connection.execute("CREATE INDEX IF NOT EXISTS event_name ON event (name)")  # a program may report a million events
    for counted in COUNTED:
        connection.execute(f"CREATE VIEW IF NOT EXISTS {counted.view} AS {_totals(counted)}")


def no_table(connection: sqlite3.Connection) -> str | None:
    """The first thing of a database that stands in the place of a record's table, or acts when a table is written: a
    view, a virtual table, a trigger. Reading it may never end. None if there is none."""
    names = ", ".join(f"'{name}'" for name in TABLES)
    plain = "type = 'table' AND sql LIKE 'CREATE TABLE %'"
    query = f"SELECT type, name FROM sqlite_master WHERE type = 'trigger' OR name IN ({names}) AND NOT ({plain})"
    other = connection.execute(query).fetchone()
    if other is None:
        return None
    kind, name = other
    return f"{kind} {name}"


def _totals(counted: CounterTable) -> str:
    """A selection of the totals; ``kind`` is its last column."""
    kind = [name for name in counted.facts if name == "kind"]
    facts = [name for name in counted.facts if name != "kind"]
    sums = [f"SUM({name}) OVER grown AS {name}" for name in counted.counts]
    listed = ", ".join(("t", *counted.keys, *facts, *sums, *kind))
    window = f"PARTITION BY {counted.each} ORDER BY {counted.growth}.id"
    return f"SELECT {listed} FROM {counted.named} WINDOW grown AS ({window})"
