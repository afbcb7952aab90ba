"""A run's directory that is not as it was written: every verb says so in one sentence."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from node.runtime.checkpoint import packed, write
from orchestrator.cli import main as cli
from orchestrator.drivers.docker import leftovers
from orchestrator.host.kernel import cgroups
from orchestrator.host.process import processes
from tests.orchestrator.example_run import Example

WAYS = 100
RUN = "dropout-run"
VERBS = (
    ("report", RUN),
    ("report", RUN, "--json"),
    ("compare", RUN, "whole"),
    ("compare", "whole", RUN, "--json"),
    ("compare", "whole", RUN, "whole"),
    ("resume", RUN),
    ("ps",),
    ("ps", "--json"),
    ("logs", "cloud", "--run", RUN),
    ("down", RUN),
    ("down", "--all"),
)
WRONG: list[Any] = [None, 7, -1, 1.5, 10**30, "", "x", "1e999", True, [], [[]], [None], {}, {"x": None}]
TEXTS = ["", "{", "[]", "7", "null", '"x"', '{"x": {}}', "[[1]]", "\x00", "NaN"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs in a folder; ``RUN``, which was interrupted, is the one to be damaged."""
    runs = tmp_path_factory.mktemp("runs")
    size = Example(edges=2, devices_per_edge=2, rounds=3)
    Example(**vars(size) | {"ending": "interrupted"}).build(runs / RUN)
    size.build(runs / "whole")
    for name in (RUN, "whole"):
        (runs / name / "logs").mkdir()
        (runs / name / "logs" / "cloud.log").write_text("ready\n")
        (runs / name / "lock").write_text("4711\n")
        write(runs / name / "checkpoints" / "cloud" / "cloud.checkpoint", packed("cloud", 2, {}, {}))
    return runs


def call(runs: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a command, which sees no other run of this host: `down --all` would end it."""
    for module, name in ((processes, "run_processes"), (leftovers, "listed"), (cgroups, "left_behind")):
        monkeypatch.setattr(module, name, lambda *_: [])
    monkeypatch.setattr(sys, "argv", ["edgebed", *words, "--runs", str(runs)])
    return cli.carry_out()


def damage_json(run: Path, rng: random.Random) -> None:
    """One value of plan.json or effective.json is another, or gone."""
    path = run / rng.choice(["plan.json", "plan.json", "effective.json"])
    document = json.loads(path.read_text())
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = rng.choice(keys)
        if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.7:
            place = place[key]
            continue
        if rng.random() < 0.3:
            del place[key]
        else:
            place[key] = rng.choice(WRONG)
        break
    path.write_text(json.dumps(document))


def damage_rows(run: Path, rng: random.Random) -> None:
    """One column of some rows is another; SQLite keeps any type in any column, but for the number of the row."""
    with closing(sqlite3.connect(run / "run.db")) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = rng.choice(tables)
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})") if row[1] != "id"]
        value = rng.choice([*TEXTS, *TEXTS, -1, 2**62, 1e300, "x", b"\xff\x00"])
        some = "1" if rng.random() < 0.5 else f"rowid % {rng.randint(1, 5)} = 0"
        database.execute(f"UPDATE OR REPLACE {table} SET {rng.choice(columns)} = ? WHERE {some}", (value,))
        database.commit()


def damage_tables(run: Path, rng: random.Random) -> None:
    """A table is gone, or has no rows, or a fact about the run is missing."""
    with closing(sqlite3.connect(run / "run.db")) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        keys = [key for (key,) in database.execute("SELECT key FROM meta")]
        if rng.random() < 0.4:
            database.execute("DELETE FROM meta WHERE key = ?", (rng.choice(keys),))
        else:
            database.execute(f"{rng.choice(['DROP TABLE', 'DELETE FROM'])} {rng.choice(tables)}")
        database.commit()


def damage_file(run: Path, rng: random.Random) -> None:
    """A file is gone, cut short, something else, or a folder."""
    files = [path for path in sorted(run.rglob("*")) if path.is_file()]
    path = rng.choice(files)
    match rng.randrange(4):
        case 0:
            path.unlink()
        case 1:
            path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size + 1)])
        case 2:
            path.write_bytes(rng.choice([rng.randbytes(300), b"", *(text.encode() for text in TEXTS)]))
        case 3:
            path.unlink()
            path.mkdir()


DAMAGES: list[Callable[[Path, random.Random], None]] = [damage_json, damage_rows, damage_tables, damage_file]


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_no_command_ends_in_a_traceback(
    whole: Path,
    tmp_path: Path,
    damage: Callable[[Path, random.Random], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = []
    for seed in range(WAYS // len(DAMAGES)):
        runs = tmp_path / str(seed)
        shutil.copytree(whole, runs)
        damage(runs / RUN, random.Random(seed))
        for words in VERBS[seed % 3 :: 3]:
            code = call(runs, words, monkeypatch)
            output, errors = capsys.readouterr()
            where = f"{damage.__name__}, seed {seed}: {words}: {errors}"
            assert code in (0, 1, 2), where
            assert errors.count("error: ") == (1 if code else 0), where
            assert "Traceback" not in output + errors, where
            if code:
                assert RUN in errors, where
                said.append(errors)
    assert said


def test_a_run_that_is_whole_can_be_read(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(whole, tmp_path / "runs")
    for words in VERBS:
        assert call(tmp_path / "runs", words, monkeypatch) == (1 if words[0] == "resume" else 0)
