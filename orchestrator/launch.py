"""From a scenario that has been read to a run in a directory of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from node.clock import VirtualLoop, run_virtual
from orchestrator.attachments import keep_files
from orchestrator.host.directory import RunDirectory
from orchestrator.planning.data import prepare_data
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.planning.shards import PreparedLabels
from orchestrator.run import Outcome, execute
from orchestrator.scenario.schema import Scenario, effective
from orchestrator.view import Clock, View

OpenView = Callable[[Clock | None], View]


def prepared_plan(scenario: Scenario, file: Path) -> Plan:
    """The plan on this host's data, which is downloaded and decoded if need be; ``file`` is the scenario's."""
    return make_plan(scenario, PreparedLabels.read(prepare_data(scenario.data, file.parent)))


def launch(
    plan: Plan, scenario: Scenario, file: Path, overrides: Sequence[str], runs: Path, open_view: OpenView, *,
    workers: int | None = None, calibrate: bool = False, meta: Mapping[str, Any] | None = None,
) -> tuple[Outcome, RunDirectory]:  # fmt: skip
    """Carry out the plan of a scenario, in a fresh directory below ``runs``.

    ``file`` and ``overrides`` are what the scenario was read from. ``open_view`` is given the run's own clock, where
    that is not the host's. ``workers`` processes train where nodes are simulated: by default one for each processor.
    """
    directory = RunDirectory.create(runs, plan.name)
    plan.write_shards(directory.shards)
    (directory.path / "scenario.yaml").write_bytes(file.read_bytes())
    keep_files(plan.links, file.parent, directory.path)
    facts = {"scenario": str(file), "overrides": list(overrides), "effective": effective(scenario), **(meta or {})}
    loop = VirtualLoop() if plan.driver == "sim" else None
    view = open_view(loop.time if loop else None)
    workers = workers or len(os.sched_getaffinity(0))
    try:
        run = execute(plan, directory, facts, view, workers=workers, calibrate=calibrate)
        return run_virtual(run, loop) if loop else asyncio.run(run), directory
    finally:
        view.close()
