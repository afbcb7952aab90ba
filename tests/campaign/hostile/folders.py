"""Hostile directories of runs and of sweeps, for everything that reads some."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from orchestrator.record.schema import TABLES
from tests.campaign.hostile.material import Draw, scalars, written
from tests.campaign.hostile.page import ask
from tests.campaign.hostile.places import KINDS, OTHER, RUN, documents, spoil
from tests.campaign.hostile.watch import call

FILES = ["plan.json", "effective.json", "summary.json", "scenario.yaml", "run.db", "run.db-wal", "report.html", "lock"]
FILES += ["logs", "logs/cloud.log", "checkpoints", "checkpoints/cloud/cloud.checkpoint", "files", "logs/up.log"]
COLUMNS = [(name, column.split()[0]) for name, columns in TABLES.items() for column in columns]
ENDLESS = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT {} FROM r"
COMMANDS = [
    *(["report", RUN], ["report", RUN, "--json"], ["compare", RUN, OTHER], ["compare", OTHER, RUN, "--json"]),
    *(
        ["export", "{place}/out", "--to", "csv", "--run", RUN],
        ["faults", RUN, "--json"],
        ["faults", RUN, "--yaml"],
        ["resume", RUN],
    ),
    *(
        ["export", "{place}/out", "--to", "tensorboard", "--run", RUN],
        ["ls"],
        ["wait", RUN],
        ["wait", RUN, "--json"],
        ["rm", RUN, "--yes"],
        ["ls", "--json"],
        ["logs", "cloud", "--run", RUN],
        ["logs", "cloud", "--record", "--run", RUN],
    ),
    *(["GET", "/api/runs"], ["GET", f"/api/plan/{RUN}"], ["GET", f"/report/{RUN}"], ["GET", f"/api/fidelity/{RUN}"]),
    *(["GET", f"/api/node/{RUN}?node=cloud"], ["GET", f"/api/link/{RUN}?source=cloud&target=edge-0"]),
    *(["GET", f"/api/faults/{RUN}"], ["GET", f"/api/compare?run={RUN}&run={OTHER}"], ["GET", f"/api/stream/{RUN}"]),
]


@st.composite
def damages(draw: Draw) -> tuple[list[tuple[str, Any, Any]], list[str]]:
    """How a directory of a run is damaged, and the command that reads it."""
    document = st.sampled_from(["plan.json", "plan.json", "effective.json", "summary.json"]).flatmap(
        lambda name: st.tuples(st.just("text"), st.just(name), written(documents()[name]))
    )
    cell = scalars | written({"fault": 1, "phase": "end", "peers": [], "text": "x", "start": 1, "end": 2})
    rows = st.tuples(st.just("cell"), st.sampled_from(COLUMNS), cell)
    tables = st.tuples(st.sampled_from(["drop", "endless"]), st.sampled_from(sorted(TABLES)), st.none())
    file = st.tuples(st.just("file"), st.sampled_from(FILES), st.sampled_from(KINDS))
    torn = st.tuples(st.just("bytes"), st.sampled_from([*FILES[:4], "run.db"]), st.integers(0, 2**32))
    one = st.one_of(document, document, rows, rows, tables, file, torn)
    return draw(st.lists(one, min_size=1, max_size=2)), draw(st.sampled_from(COMMANDS))


def _damage(place: Path, how: str, where: Any, what: Any) -> None:
    if how != "file" and (place / (where if how in ("text", "bytes") else "run.db")).is_symlink():
        return  # the campaign itself changes nothing elsewhere
    if how == "text":
        (place / where).write_text(what, encoding="utf-8", errors="surrogatepass")
    elif how == "file":
        spoil(place.parent, place / where, what)
    elif how == "bytes" and (place / where).is_file() and (data := bytearray((place / where).read_bytes())):
        data[what % len(data)] ^= 1 + what % 255
        (place / where).write_bytes(data)
    elif how in ("cell", "drop", "endless"):
        with contextlib.closing(sqlite3.connect(place / "run.db")) as database:
            if how == "cell":
                value = what if not isinstance(what, int) or abs(what) < 2**63 else 1e300
                database.execute(f"UPDATE OR REPLACE {where[0]} SET {where[1]} = ?", (value,))
            else:
                database.execute(f"DROP TABLE {where}")
            if how == "endless":
                columns = [column.split()[0] for column in TABLES[where]]
                one = ENDLESS.format(", ".join(f"x AS {column}" for column in columns))
                database.execute(f"CREATE VIEW {where} AS {one}")
            database.commit()


def feed_run(place: Path, given: tuple[list[tuple[str, Any, Any]], list[str]]) -> None:
    how, command = given
    with contextlib.suppress(OSError, sqlite3.Error, UnicodeError):
        for each in how:
            _damage(place, *each)
    if command[0] == "GET":
        ask(place.parent, command[1])
    else:
        call(*(word.format(place=place) for word in command), "--runs", str(place.parent))


SWEEP = {"name": "x", "planned": 1, "cases": [{"case": "a", "runs": [{"run": "x/first", "seed": 1}], "figures": {}}]}
SWEEP_COMMANDS = [
    *(["export", "{place}/out", "--to", "csv", "--run", RUN], ["ls", "--json"], ["GET", f"/api/compare?sweep={RUN}"]),
    *(["GET", "/api/runs"], ["GET", f"/api/plan/{RUN}/first"], ["report", f"{RUN}/first"]),
]


def feed_sweep(place: Path, given: tuple[str, list[str]]) -> None:
    feed_run(place, ([("text", "sweep.json", given[0])], given[1]))
