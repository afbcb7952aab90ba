"""Start a run of a loaded scenario in its own directory, or continue a run that ended early."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from node.assignment import PluginSource
from node.runtime.clock import collecting_seldom
from orchestrator.drivers.base import KnowsHosts, entry_of
from orchestrator.errors import HostError, RunError
from orchestrator.host.process.signals import interruptible
from orchestrator.planning.copies.scenario_folder import refuse_large
from orchestrator.planning.copies.trace_files import kept_files
from orchestrator.planning.learning.dataset import prepare_data
from orchestrator.planning.learning.shards import PreparedLabels
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory
from orchestrator.record.writer import Record
from orchestrator.report.judgement import Conclusion, judged
from orchestrator.results.history import History
from orchestrator.run.display.snapshot import SafeView, View, safely
from orchestrator.run.down import clear
from orchestrator.run.in_guest import execute_in_guest
from orchestrator.run.lifecycle import execute
from orchestrator.run.options import Origin, RunOptions
from orchestrator.run.preparation import begin, on_clock, require
from orchestrator.run.resume import past_of
from orchestrator.run.tasks import Ending
from orchestrator.run.trackers import tracked
from orchestrator.scenario.reading import parse
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.drivers import DriverKind
from orchestrator.text import some

OpenView = Callable[[bool], View]
DEFAULTS = RunOptions()


def prepared_plan(scenario: Scenario, file: Path) -> Plan:
    """The plan on this host's data. Downloads and decodes the data if needed. ``file`` is the scenario's file."""
    labels = None
    if scenario.algorithm is not None:
        data = prepare_data(scenario.data, file.parent, scenario.catalogue.datasets)
        labels = PreparedLabels.read(data)
    entry = entry_of(scenario.driver_kind)
    inventory = None
    if isinstance(entry, KnowsHosts):
        inventory = entry.inventory()
    folder = file.parent.absolute()
    if scenario.programs and inventory is not None:
        refuse_large(folder)
    return make_plan(scenario, labels, str(folder), inventory)


def launch(
    plan: Plan,
    origin: Origin,
    runs: Path,
    open_view: OpenView,
    options: RunOptions = DEFAULTS,
) -> tuple[Conclusion, RunDirectory]:
    """Execute the plan of a scenario, in a fresh directory below ``runs``.

    ``open_view`` receives whether the run's clock is virtual.
    HostError if this host lacks something that the driver needs, or if this process may not open as many files as the
    run needs. Then nothing is made.
    """
    require(plan, options.processes)
    with interruptible() as interruption:
        directory = RunDirectory.create(runs, plan.name)
        interruption.at_once = directory.remove
        with contextlib.ExitStack() as holding:
            try:
                holding.enter_context(directory.held())
                record = begin(directory, plan, origin)
            except Exception:
                directory.remove()
                raise
            begun = options.begun
            if begun is not None:
                safely("the page of this run", lambda: begun(directory))
            start = partial(execution_of(plan), plan, directory, record, interruption, holding, options)
            try:
                with tracked(directory, options.track):
                    conclusion = _run(plan.driver_kind, directory, open_view, start)
            except HostError:  # nothing was started
                directory.remove()
                raise
    if options.measured is not None:
        options.measured.judge(conclusion.summary["checks"])
    return conclusion, directory


def resume(directory: RunDirectory, open_view: OpenView, *, workers: int | None = None) -> Conclusion:
    """Continue a run that ended early after the last round in its checkpoints. RunError if it still runs, is complete,
    has no checkpoint or belongs to another user, or if its scenario gives another plan now."""
    if not directory.is_ours:  # its plug-ins are code of that user
        raise RunError(f"{directory.path} belongs to another user, or others may write to it: `resume` it as its user")
    options = RunOptions(workers)
    with interruptible() as interruption, contextlib.ExitStack() as holding:
        holding.enter_context(directory.held())
        past = past_of(directory)
        plan = planned_again(directory)
        require(plan, options.processes)
        clear(directory.run, directory)  # remove what a killed orchestrator left behind
        try:
            directory.reopen()
            plan.shards.write(directory.shards)
        except OSError as error:
            raise RunError(f"{directory.run} cannot be continued: {error}") from None
        first_kept = min(past.kept)
        record = Record.resume(directory.path, past.seconds, past.ended, first_kept)
        start = partial(
            execution_of(plan),
            plan,
            directory,
            record,
            interruption,
            holding,
            options,
            past=past,
        )
        return _run(plan.driver_kind, directory, open_view, start)


def execution_of(plan: Plan) -> Callable[..., Coroutine[Any, Any, Ending]]:
    """What executes a plan: this process, or a guest."""
    if plan.driver_kind.virtual:
        return execute_in_guest
    return execute


def kept_origin(
    directory: RunDirectory, folder: Path | None = None, plugins: Iterable[PluginSource] | None = None
) -> Origin:
    """The scenario of a run, from the copies in its directory. RunError if the scenario cannot be read.

    ``folder``: where paths start, by default the scenario's own folder. ``plugins`` as for `parse`.
    """
    with History.open(directory.path) as history:
        meta = history.meta
        name = Path(meta["scenario"]).name
        file = Path(folder or meta.get("folder", "."), name)
        overrides = [str(override) for override in meta["overrides"]]
        files = kept_files(history.plan, directory.path)
    try:
        text = directory.scenario.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{directory.run} cannot be continued: {directory.scenario} cannot be read ({error})") from None
    scenario = parse(text, str(file), overrides, files, plugins)
    return Origin(scenario, file, overrides, text, files=files)


def planned_again(directory: RunDirectory) -> Plan:
    """The plan of a run, made again from its scenario. RunError if it differs from the recorded plan."""
    with History.open(directory.path) as history:
        planned = history.plan
    origin = kept_origin(directory)
    plan = prepared_plan(origin.scenario, origin.file)
    planned_hosts = {host["name"] for host in planned.get("hosts", ())}
    present_hosts = {host.name for host in plan.hosts}
    missing = sorted(planned_hosts - present_hosts)
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise RunError(
            f"{directory.run} cannot be continued: it is continued on the hosts of its plan, and {some(missing)} "
            f"{verb} not among those that nodes would run on now: see `hosts`"
        )
    differing = []
    for key, value in plan.recorded.items():
        if planned.get(key) != value:
            differing.append(key)
    if differing:
        raise RunError(
            f"{directory.run} cannot be continued: this version, or the data on this host, makes another plan of its "
            f"scenario ({', '.join(differing)}); start it again with `up`, or use the version and data of its first run"
        )
    return plan


def _run(
    driver: DriverKind,
    directory: RunDirectory,
    open_view: OpenView,
    start: Callable[[View], Coroutine[Any, Any, Ending]],
) -> Conclusion:
    """Run the coroutine from ``start`` on the clock of the driver, and judge the run."""
    view = SafeView(lambda: open_view(driver.simulated))
    try:
        view.line(f"run {directory.run}")
        ending = on_clock(driver, start(view))
    finally:
        view.close()
    # 8. Judge the run from its record alone, and write the report.
    with collecting_seldom():  # the objects of a simulation still exist
        return judged(directory, ending.reason, ending.error)
