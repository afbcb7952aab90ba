"""A run that begins on one host and is carried out on another, whose copy of edgebed and of the data set is the same.

Its directory travels: `begun` makes it, `carry_out` works in a copy of it, and the files of the copy come back. It is
judged where it began, so that it is as if it had been carried out there. This module is loaded on the other host too,
which has none of the libraries that only show and judge runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from node.assignment import PluginSource
from node.learning.data.datasets import open_prepared
from node.learning.errors import DataError
from orchestrator.errors import HostError, RunError
from orchestrator.host.directory import RunDirectory
from orchestrator.host.process.signals import interruptible
from orchestrator.planning.copies.trace_files import kept_files
from orchestrator.planning.learning.shards import PreparedLabels
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.results.record.history import History
from orchestrator.results.record.writer import Record
from orchestrator.run.display.snapshot import Clock, Snapshot
from orchestrator.run.lifecycle import execute
from orchestrator.run.options import Origin, RunOptions
from orchestrator.run.preparation import begin, on_clock
from orchestrator.run.requirements import require
from orchestrator.scenario.reading import parse

STAYS = ("lock", "token")
"""The files of a directory that belong to processes of one host."""


def begun(plan: Plan, origin: Origin, runs: Path) -> RunDirectory:
    """A fresh directory below ``runs`` with a record that has started."""
    directory = RunDirectory.create(runs, plan.name)
    try:
        begin(directory, plan, origin).close()
        directory.remove_keys()  # no node starts here
    except BaseException:
        directory.remove()
        raise
    return directory


def travelling(directory: RunDirectory) -> list[Path]:
    """The files of a directory that go to another host, and come back."""
    found = sorted(each for each in directory.path.rglob("*") if each.is_file())
    return [each for each in found if each.relative_to(directory.path).as_posix() not in STAYS]


def carry_out(directory: RunDirectory, data: Path, plugins: Iterable[PluginSource], host: str) -> None:
    """Carry out a run that began on another host, in the copy of its directory on this one, which is called ``host``.
    Whatever the run comes to is in its record.

    ``data`` is the prepared data set. ``plugins``: the sources of the plug-ins, whose copies are in the directory.
    HostError or RunError if this host cannot carry out the run as it was planned.
    """
    for folder in (directory.logs, directory.checkpoints, directory.plugins):
        folder.mkdir(exist_ok=True)  # folders without files do not travel
    directory.reopen()
    with interruptible() as interruption, directory.held():
        plan = _plan_of(directory, data, plugins)
        require(plan, 1)
        record = Record.carry_on(directory.path, host)
        on_clock(plan.driver, execute(plan, directory, record, _Unseen(), interruption, RunOptions(1)))


def _plan_of(directory: RunDirectory, data: Path, plugins: Iterable[PluginSource]) -> Plan:
    """The plan, made anew. RunError if it differs from the recorded plan."""
    if str(directory.plugins) not in sys.path:
        sys.path.append(str(directory.plugins))  # for plug-ins that are modules
    sources = [replace(each, root=str(directory.plugins / Path(each.root).name)) for each in plugins]
    with History.open(directory.path) as history:
        planned, meta = history.plan, history.meta
        file, files = Path(meta["folder"], Path(meta["scenario"]).name), kept_files(planned, directory.path)
    scenario = parse(
        directory.scenario.read_text(encoding="utf-8"),
        str(file),
        [str(each) for each in meta["overrides"]],
        files,
        sources,
    )
    try:
        plan = make_plan(scenario, PreparedLabels.read(open_prepared(data)), meta["folder"])
    except DataError as error:
        raise HostError(str(error)) from None
    if differing := [key for key, value in plan.recorded.items() if planned.get(key) != value]:
        raise RunError(f"this host makes another plan of its scenario ({', '.join(differing)})")
    return plan


class _Unseen:
    """A view that nobody sees."""

    def keep_time(self, clock: Clock) -> None: ...

    def update(self, snapshot: Snapshot) -> None: ...

    def line(self, text: str) -> None: ...

    def close(self) -> None: ...
