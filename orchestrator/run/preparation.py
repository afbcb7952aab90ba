"""The beginning of a run: what its directory holds before anything is started, and the clock that it runs on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, TypeVar

from node.runtime.clock import VirtualLoop, run_virtual
from orchestrator.errors import RunError
from orchestrator.host.directory import RunDirectory
from orchestrator.planning.copies.plugin_files import keep_plugins
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
    keep_files(planned, file.parent, directory.path)
    keep_plugins(plan.plugins, directory.plugins)
    return Record.create(directory.path, json.dumps(planned, indent=1) + "\n", facts)


def on_clock(driver: str, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work`` on the clock of a driver."""
    return run_virtual(work, VirtualLoop()) if DRIVERS[driver].simulated else asyncio.run(work)
