"""The tables of a record, in the form that is written now, and how records of older versions are read and continued.

Counts of links and of messages only grow, so a row has what was added since the row before it: most of these numbers
are small, and SQLite stores a small number in few bytes. What a row belongs to is in a table of its own, written once.
The views ``counters`` and ``traffic`` give the totals, under the names that they had as tables until version 4.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable, Iterator, Sequence
from operator import sub
from typing import Any, NamedTuple, TypeVar

APPLICATION_ID = 0x65646264  # "edbd": identifies edgebed's databases (sqlite.org/pragma.html#pragma_application_id)
SCHEMA_VERSION = 6
READABLE = (2, 3, 4, 5, SCHEMA_VERSION)
SENSORS, KINDS, GROWTH, MEDIA = 3, 4, 5, 6
"""From which version on there are: a table sensor, a kind of link figures, growth, not totals, a table channel."""

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

_KIND = "kind TEXT"
"""A column of tables with figures of links: a `LinkKind`; NULL in rows from before version 4."""

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
        *("verdict TEXT NOT NULL", "detail TEXT NOT NULL", _KIND),
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
INSERT = {
    table: f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(columns))})"
    for table, columns in TABLES.items()
}


class Counted(NamedTuple):
    """What is counted: ``each`` is the table of the things that have counts, ``view`` gives the totals, and was the
    table of totals until version 4."""

    each: str
    keys: tuple[str, ...]  # that tell the things apart
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


LINKS = Counted("link", ("source", "target"), ("link_class", "kind"), COUNTERS, "counters")
FLOWS = Counted("flow", ("node", "peer", "kind", "direction"), (), ("messages", "bytes"), "traffic")
COUNTED = (LINKS, FLOWS)


N = TypeVar("N", int, float)


class Totals:
    """The latest totals of things that are counted."""

    def __init__(self) -> None:
        self._last: dict[Hashable, Sequence[Any]] = {}

    def growth(self, key: Hashable, totals: Sequence[N]) -> tuple[N, ...]:
        """What was added to the totals of a thing. If any total has fallen, all have begun again at 0."""
        before = self._last.get(key)
        self._last[key] = totals
        if before is None:
            return tuple(totals)
        added = tuple(map(sub, totals, before))
        return tuple(totals) if min(added) < 0 else added


def make_tables(connection: sqlite3.Connection) -> None:
    """Make the tables and views that are not there, and set the version of the schema."""
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    for table, columns in TABLES.items():
        connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(columns)})")
    for counted in COUNTED:
        connection.execute(f"CREATE VIEW IF NOT EXISTS {counted.view} AS {_totals(counted)}")


def upgrade(connection: sqlite3.Connection) -> None:
    """Bring a record of an older version to the present one."""
    schema = version(connection)
    if schema < KINDS:
        connection.execute(f"ALTER TABLE probe ADD COLUMN {_KIND}")
    if schema < GROWTH:
        for counted in COUNTED:
            for table, selection in _from_totals(counted, schema):
                connection.execute(f"CREATE TABLE {table} ({', '.join(TABLES[table])})")
                connection.execute(f"INSERT INTO {table} {selection}")
        for counted in COUNTED:
            connection.execute(f"DROP TABLE {counted.view}")
    make_tables(connection)


def read_as_growth(connection: sqlite3.Connection) -> None:
    """Let a connection that reads a record of an older version find the tables of growth, as temporary views, and an
    empty table channel."""
    if version(connection) < MEDIA:
        connection.execute(f"CREATE TEMP TABLE channel ({', '.join(TABLES['channel'])})")
    if (schema := version(connection)) < GROWTH:
        for counted in COUNTED:
            for table, selection in _from_totals(counted, schema):
                connection.execute(f"CREATE TEMP VIEW {table} AS {selection}")


def version(connection: sqlite3.Connection) -> int:
    """The version of the schema of a record."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def no_table(connection: sqlite3.Connection) -> str | None:
    """The first thing of a database that stands in the place of a record's table, or acts when a table is written: a
    view, a virtual table, a trigger. Reading it may never end. None if there is none."""
    names = ", ".join(f"'{name}'" for name in (*TABLES, *(c.view for c in COUNTED if version(connection) < GROWTH)))
    plain = "type = 'table' AND sql LIKE 'CREATE TABLE %'"
    query = f"SELECT type, name FROM sqlite_master WHERE type = 'trigger' OR name IN ({names}) AND NOT ({plain})"
    found = connection.execute(query).fetchone()
    return None if found is None else "{} {}".format(*found)


def _totals(counted: Counted) -> str:
    """A selection of the totals, with the columns that the table of totals had until version 4."""
    kind = [name for name in counted.facts if name == "kind"]  # the last column, as version 4 added it
    facts = [name for name in counted.facts if name != "kind"]
    sums = [f"SUM({name}) OVER grown AS {name}" for name in counted.counts]
    listed = ", ".join(("t", *counted.keys, *facts, *sums, *kind))
    window = f"PARTITION BY {counted.each} ORDER BY {counted.growth}.id"
    return f"SELECT {listed} FROM {counted.named} WINDOW grown AS ({window})"


def _from_totals(counted: Counted, schema: int) -> Iterator[tuple[str, str]]:
    """For each of the two tables, the selection that makes it from the table of totals of an older version."""
    keys = ", ".join(counted.keys)
    missing = "kind" if schema < KINDS else None
    facts = [f"{'NULL' if name == missing else f'MAX({name})'} AS {name}" for name in counted.facts]
    things = ", ".join((f"DENSE_RANK() OVER (ORDER BY {keys}) AS id", *counted.keys, *facts))
    yield counted.each, f"SELECT {things} FROM {counted.view} GROUP BY {keys}"
    before = {name: f"LAG({name}, 1, 0) OVER thing" for name in counted.counts}
    fallen = " OR ".join(f"{name} < {earlier}" for name, earlier in before.items())
    grown = [f"{name} - IIF({fallen}, 0, {earlier}) AS {name}" for name, earlier in before.items()]
    listed = ", ".join(("rowid AS id", "t", f"DENSE_RANK() OVER (ORDER BY {keys}) AS {counted.each}", *grown))
    window = f"PARTITION BY {keys} ORDER BY rowid"
    yield counted.growth, f"SELECT {listed} FROM {counted.view} WINDOW thing AS ({window}) ORDER BY id"
