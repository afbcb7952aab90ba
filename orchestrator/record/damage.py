"""The errors of records that are damaged, were changed, or are of another version."""

from __future__ import annotations

import contextlib
import sqlite3
import traceback
from collections.abc import Iterator
from pathlib import Path

from orchestrator.errors import RecordError
from orchestrator.record.schema import APPLICATION_ID, SCHEMA_VERSION

BROKEN = (sqlite3.Error, UnicodeError)  # of a database: sqlite3 also fails to decode the message of an error
_REMEDY = "restore it from a copy, or start its scenario again with `up`"
DAMAGE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, sqlite3.Error)


@contextlib.contextmanager
def using_record(directory: Path) -> Iterator[None]:
    """Turn an error that a damaged record can cause into a RecordError, like a `History`."""
    try:
        yield
    except DAMAGE as error:
        raise damaged(directory, error) from error


def damaged(directory: Path, error: BaseException) -> RecordError:
    """An error of `DAMAGE`, in words, with the place in the code."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    module = Path(place.filename).name
    details = f"{type(error).__name__}: {str(error)[:200]}; {module}, line {place.lineno}"
    return RecordError(f"{directory} cannot be read ({details}): a file in it is damaged or was changed; {_REMEDY}")


def changed(database: Path, odd: str) -> RecordError:
    """A database with another object in the place of a table."""
    return RecordError(f"{database} has the {odd}, which no run makes: it was changed; {_REMEDY}")


def unreadable(database: Path, error: Exception) -> RecordError:
    """An error of `BROKEN`, in words."""
    return RecordError(
        f"{database} cannot be read ({error}): it is not a database, is damaged, "
        "or lies where its -shm file cannot be made; copy the whole run directory somewhere writable and try there"
    )


def foreign(database: Path, application: int, schema: int | None) -> RecordError:
    """A database that is no record, or one of another version."""
    if schema is None:
        return RecordError(f"{database} is empty: the run was killed before it started; start it again with `up`")
    if application != APPLICATION_ID:
        return RecordError(f"{database} is not a record of a run: another program wrote it")
    age = "an older"
    remedy = "read it with that version, or start its scenario again with `up`"
    if schema > SCHEMA_VERSION:
        age = "a newer"
        remedy = "upgrade edgebed"
    difference = f"it has schema {schema}, this version reads {SCHEMA_VERSION}"
    return RecordError(f"{database} is of {age} version of edgebed ({difference}): {remedy}")
