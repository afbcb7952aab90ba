"""Makes a record one of an older version: with tables of totals, and without what came later."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from orchestrator.results.record.schema import COUNTED, GROWTH, KINDS, SENSORS
from orchestrator.results.record.writer import DATABASE


def as_version(schema: int, directory: Path) -> None:
    """Make the record in ``directory``, which was written by this version, one of the version ``schema``."""
    with contextlib.closing(sqlite3.connect(directory / DATABASE)) as database:
        if schema < GROWTH:
            for counted in COUNTED:
                (view,) = database.execute("SELECT sql FROM sqlite_master WHERE name = ?", (counted.view,)).fetchone()
                totals = view.partition(" AS ")[2]
                database.execute(f"CREATE TABLE totals AS {totals} ORDER BY {counted.growth}.id")
                database.execute(f"DROP VIEW {counted.view}")
                database.execute(f"ALTER TABLE totals RENAME TO {counted.view}")
            for counted in COUNTED:
                database.execute(f"DROP TABLE {counted.growth}")
                database.execute(f"DROP TABLE {counted.each}")
        if schema < KINDS:
            for table in ("probe", "counters"):
                database.execute(f"ALTER TABLE {table} DROP COLUMN kind")
        if schema < SENSORS:
            database.execute("DROP TABLE sensor")
        database.execute(f"PRAGMA user_version = {schema}")
        database.commit()
