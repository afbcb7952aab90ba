"""One case carried out twice: by two hosts with different hash seeds and different numbers of workers."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.record.directory import known_runs
from orchestrator.results.history import History
from tests.campaign.case import Case
from tests.campaign.host import Ended, Host

WORKERS = (1, 3)
HASH_SEEDS = (1, 2)

Rows = dict[str, list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Carried:
    """A case carried out once: ``up``, and ``resume`` if it was interrupted before its end."""

    folder: Path
    up: Ended
    resumed: Ended | None

    @property
    def commands(self) -> list[Ended]:
        return [self.up, *([] if self.resumed is None else [self.resumed])]

    @property
    def last(self) -> Ended:
        return self.commands[-1]

    @cached_property
    def directory(self) -> Path | None:
        """The run's directory; None if there is no run."""
        found = known_runs(self.folder / "runs")
        return found[-1].path if found else None

    @cached_property
    def rows(self) -> Rows:
        """All rows of the record, except the host's facts: `meta`, and the run's wall time."""
        if self.directory is None:
            return {}
        with contextlib.closing(sqlite3.connect(self.directory / "run.db")) as database:
            names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows = {name: database.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall() for name in names}
        del rows["meta"]
        rows["outcome"] = [(t, json.dumps(json.loads(facts) | {"wall_seconds": None})) for t, facts in rows["outcome"]]
        return rows


@dataclass(frozen=True)
class Trial:
    """A case and the results of both times."""

    case: Case
    first: Carried
    again: Carried

    @cached_property
    def history(self) -> History:
        """The record of the first time; requires that there is a run."""
        assert self.first.directory is not None
        return History.open(self.first.directory)

    @property
    def refused(self) -> bool:
        """Whether the scenario was refused, so that there was no run."""
        return self.first.up.code == 2

    @property
    def cut_off(self) -> bool:
        """Whether the case's interruption ended the run, in order or not."""
        return self.case.interruption is not None and self.first.up.code in (130, -signal.SIGKILL)

    @property
    def killed(self) -> bool:
        """Whether the orchestrator was killed, so that the record depends on the time of its last write."""
        return self.first.up.code == -signal.SIGKILL


class Hosts:
    """The two hosts of all trials."""

    def __init__(self) -> None:
        self._hosts = [Host(seed) for seed in HASH_SEEDS]

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *_: object) -> None:
        for host in self._hosts:
            host.close()

    @contextlib.contextmanager
    def trial(self, case: Case, planted: str | None = None) -> Iterator[Trial]:
        """Carry out a case; its files exist inside the context."""
        with tempfile.TemporaryDirectory(prefix="campaign-") as name:
            folders = [Path(name) / "first", Path(name) / "again"]
            for host, folder, workers in zip(self._hosts, folders, WORKERS, strict=True):
                folder.mkdir()
                (folder / "scenario.yaml").write_text(case.written())
                host.begin(
                    folder, ["up", folder / "scenario.yaml", *_common(folder, workers)], case.interruption, planted
                )
            ups = [host.end() for host in self._hosts]
            going_on = [
                _was_cut(folder, up) if case.interruption else False for folder, up in zip(folders, ups, strict=True)
            ]
            for host, folder, workers, cut in zip(self._hosts, folders, WORKERS, going_on, strict=True):
                if cut:
                    host.begin(folder, ["resume", *_common(folder, workers)], None, planted)
            resumed = [host.end() if cut else None for host, cut in zip(self._hosts, going_on, strict=True)]
            first, again = (Carried(*each) for each in zip(folders, ups, resumed, strict=True))
            yield Trial(case, first, again)


def _common(folder: Path, workers: int) -> list[str | Path]:
    return ["--runs", folder / "runs", "--json", "--workers", str(workers)]


def _was_cut(folder: Path, up: Ended) -> bool:
    """Whether the interruption ended the run, so that it may be continued."""
    if up.code == -signal.SIGKILL:
        return True
    ended = json.loads(up.output).get("ended") if up.output.strip() else None
    return ended == "interrupted"
