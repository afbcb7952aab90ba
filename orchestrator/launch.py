"""From a scenario that has been read to a run in a directory of its own, and on from where one ended early."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from node.clock import VirtualLoop, run_virtual
from orchestrator.attachments import keep_files
from orchestrator.errors import RunError
from orchestrator.host.directory import RunDirectory
from orchestrator.host.down import clear
from orchestrator.past import past_of
from orchestrator.planning.data import prepare_data
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.planning.shards import PreparedLabels
from orchestrator.requirements import require
from orchestrator.results.history import History
from orchestrator.run import Outcome, execute
from orchestrator.scenario.reading import parse
from orchestrator.scenario.schema import Scenario, effective
from orchestrator.view import View

OpenView = Callable[[bool], View]


def prepared_plan(scenario: Scenario, file: Path) -> Plan:
    """The plan on this host's data, which is downloaded and decoded if need be; ``file`` is the scenario's."""
    return make_plan(scenario, PreparedLabels.read(prepare_data(scenario.data, file.parent)))


def launch(
    plan: Plan, scenario: Scenario, file: Path, overrides: Sequence[str], runs: Path, open_view: OpenView, *,
    workers: int | None = None, calibrate: bool = False, meta: Mapping[str, Any] | None = None,
) -> tuple[Outcome, RunDirectory]:  # fmt: skip
    """Carry out the plan of a scenario, in a fresh directory below ``runs``.

    ``file`` and ``overrides`` are what the scenario was read from. ``open_view`` is told whether the
    run's clock is virtual. ``workers`` processes train where nodes are simulated: by default one for each processor.
    HostError, and nothing is made, if this host lacks what the driver needs.
    """
    require(plan.driver)
    directory = RunDirectory.create(runs, plan.name)
    plan.write_shards(directory.shards)
    (directory.path / "scenario.yaml").write_bytes(file.read_bytes())
    keep_files(plan.links, file.parent, directory.path)
    facts = {
        "scenario": str(file), "folder": str(file.parent.absolute()), "overrides": list(overrides),
        "effective": effective(scenario), **(meta or {}),
    }  # fmt: skip

    with contextlib.ExitStack() as holding:
        holding.enter_context(directory.held())

        def start(view: View) -> Coroutine[Any, Any, Outcome]:
            return execute(
                plan, directory, facts, view, holding=holding, workers=_workers(workers), calibrate=calibrate
            )

        return _run(plan.driver, open_view, start), directory


def resume(directory: RunDirectory, open_view: OpenView, *, workers: int | None = None) -> Outcome:
    """Go on with a run that ended early, in its directory, after the last round that it kept.

    RunError if it is running, complete, or kept none, or if this version or this host's data make another plan of its
    scenario.
    """
    with contextlib.ExitStack() as holding:
        holding.enter_context(directory.held())
        past = past_of(directory)
        plan = _plan_of(directory)
        require(plan.driver)
        clear(directory.run, directory)  # what is left where its orchestrator was killed
        directory.reopen()

        def start(view: View) -> Coroutine[Any, Any, Outcome]:
            return execute(plan, directory, {}, view, holding=holding, workers=_workers(workers), past=past)

        return _run(plan.driver, open_view, start)


def _plan_of(directory: RunDirectory) -> Plan:
    """The plan that a run was carried out by, made anew. RunError if it comes out otherwise."""
    with History.open(directory.path) as history:
        planned, meta = history.plan, history.meta
    file = Path(meta.get("folder", "."), Path(meta["scenario"]).name)
    try:
        text = (directory.path / "scenario.yaml").read_text(encoding="utf-8")
    except OSError as error:
        raise RunError(f"{directory.run} cannot be continued: {error}") from None
    plan = prepared_plan(parse(text, str(file), meta["overrides"]), file)
    if differing := [key for key, value in plan.recorded.items() if planned.get(key) != value]:
        raise RunError(
            f"{directory.run} cannot be continued: this version, or the data on this host, makes another plan of its "
            f"scenario ({', '.join(differing)}); `up` it anew, or use what it was run with"
        )
    return plan


def _run(driver: str, open_view: OpenView, start: Callable[[View], Coroutine[Any, Any, Outcome]]) -> Outcome:
    """Carry out what ``start`` makes, on the clock of the driver."""
    loop = VirtualLoop() if driver == "sim" else None
    view = open_view(loop is not None)
    try:
        return run_virtual(start(view), loop) if loop else asyncio.run(start(view))
    finally:
        view.close()


def _workers(asked: int | None) -> int:
    return asked or len(os.sched_getaffinity(0))
