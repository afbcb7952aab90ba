"""The beginning of a run: what its directory holds before anything is started, and the clock that it runs on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from node.assignment import PluginSource
from node.plugins import digest
from node.runtime.clock import VirtualLoop, run_virtual
from orchestrator.errors import RunError
from orchestrator.host.directory import RunDirectory
from orchestrator.planning.copies.trace_files import keep_files
from orchestrator.planning.plan import Plan
from orchestrator.results.record.writer import Record
from orchestrator.run.options import Origin
from orchestrator.scenario.schema import effective
from orchestrator.scenario.sections.drivers import DRIVERS

T = TypeVar("T")


def begin(directory: RunDirectory, plan: Plan, origin: Origin) -> Record:
    """Write the shards, the scenario and the plan into the directory. RunError or RecordError if there is no room."""
    file, text = origin.file, origin.text
    facts = {
        "scenario": str(file),
        "folder": str(file.parent.absolute()),
        "overrides": list(origin.overrides),
        "effective": effective(origin.scenario),
        **origin.meta,
    }
    try:
        plan.write_shards(directory.shards)
        directory.scenario.write_bytes(file.read_bytes() if text is None else text.encode())
    except OSError as error:
        raise RunError(
            f"cannot make the run's directory {directory.path}: {error.strerror}; make room, or choose --runs"
        ) from None
    planned = plan.to_json()
    keep_files(planned, file.parent, directory.path, origin.files)
    keep_plugins(plan.plugins, directory.plugins)
    return Record.create(directory.path, json.dumps(planned, indent=1) + "\n", facts)


def on_clock(driver: str, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work`` on the clock of a driver."""
    return run_virtual(work, VirtualLoop()) if DRIVERS[driver].simulated else asyncio.run(work)


def keep_plugins(sources: Iterable[PluginSource], folder: Path) -> None:
    """Copy the Python files of the plug-ins into ``folder``. RunError if one has changed since the plan was made."""
    folder.mkdir(mode=0o755, exist_ok=True)
    for source in sources:
        try:
            contents = source.contents()
            if digest(contents) != source.sha256:
                raise RunError(f"plug-in {source.name} was changed after the scenario was read: start again")
            for path, content in contents.items():
                place = folder / path
                place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                place.write_bytes(content)
                place.chmod(0o644)
        except OSError as error:
            raise RunError(f"plug-in {source.name} cannot be kept in {folder}: {error}; is it still there?") from None
