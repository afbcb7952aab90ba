"""Run a scenario under the `sim` driver, in this process."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.results.history import History


@dataclass(frozen=True)
class Simulated:
    code: int
    summary: dict[str, Any]
    errors: str

    @property
    def directory(self) -> Path:
        return Path(self.summary["run"])

    def history(self) -> History:
        return History.open(self.directory)

    def record(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of the record but those about the host: `meta`, and how long the run took it."""
        with contextlib.closing(sqlite3.connect(self.directory / "run.db")) as database, database:
            names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows = {name: database.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall() for name in names}
        database.close()
        del rows["meta"]
        rows["outcome"] = [(t, json.loads(facts) | {"wall_seconds": None}) for t, facts in rows["outcome"]]
        return rows


def simulate(tmp_path: Path, scenario: str | Path, *arguments: str) -> Simulated:
    """`up --driver sim --json`; ``scenario`` is its text, or its file. Each worker is a fork of this process."""
    path = scenario
    if isinstance(scenario, str):
        path = tmp_path / "scenario.yaml"
        path.write_text(scenario)
    runs = tmp_path / "runs"
    words = ["up", str(path), "--driver", "sim", "--runs", str(runs), "--json", "--workers", "1", *arguments]
    done = CliRunner().invoke(cli, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Simulated(done.exit_code, json.loads(done.stdout) if done.stdout.strip() else {}, done.stderr)
