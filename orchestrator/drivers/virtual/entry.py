"""The entry of this driver, see `orchestrator.drivers.base.DriverEntry`.

On the host, a run of this driver boots a guest (`orchestrator.run.in_guest`). In the guest, nodes and links are those
of the driver namespaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack

from orchestrator.drivers.base import Environment, LeftRun, Removal, Tell, Trace
from orchestrator.drivers.namespaces import entry as namespaces
from orchestrator.drivers.virtual.guest import PART, missing_memory, remove_folder
from orchestrator.drivers.virtual.kernel import BUILD, built_kernel, needed_kernel, newest_source
from orchestrator.errors import HostError, RunError
from orchestrator.host.commands import absent
from orchestrator.host.process import python
from orchestrator.host.process.processes import end, run_processes
from orchestrator.host.training_devices import missing_here
from orchestrator.host.trial import Trial
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory

USED_BY = "`--virtual`"


def missing(plan: Plan | None = None) -> list[HostError]:
    """An error for each missing command, without a kernel for the guest or without PyTorch, and if the guest needs more
    memory than this host has. The guest runs this host's commands, and its Python."""
    errors = absent()
    try:
        needed_kernel()
    except HostError as error:
        errors.append(error)
    if plan is not None and not plan.programs:
        errors += missing_here(plan.accelerators)
    if plan is not None:
        memory = missing_memory(plan)
        if memory is not None:
            errors.append(memory)
    return errors


async def open_environment(
    plan: Plan,
    directory: RunDirectory,
    stack: AsyncExitStack,
    workers: int,
    tell: Tell,
) -> Environment:
    """In the guest: as the driver namespaces."""
    return await namespaces.open_environment(plan, directory, stack, workers, tell)


def traces(run: str | None = None) -> list[Trace]:
    """None but the processes of guests, which have the labels of their runs."""
    return []


def remove(run: LeftRun) -> Removal:
    """End the guest of a run first, so that nothing of it still writes, and remove the folder that it wrote to."""
    if run.directory is not None:
        guests = [process for process in run_processes(run.run) if process.part == PART]
        end(guests)
        remove_folder(run.directory)
    return Removal()


def enter(
    run: str,
    node: str,
    planned: Mapping[str, object],
    *,
    terminal: bool,
) -> list[str]:
    """The argv prefix that runs a command in a node of the guest of a run, see `orchestrator.drivers.virtual.enter`."""
    for process in run_processes(run):
        if process.part == PART:
            return python.module("orchestrator.drivers.virtual.enter", str(process.directory), node)
    raise RunError(f"the guest of {run} does not run, or belongs to another user")


def trials() -> list[Trial]:
    """The kernel of guests."""
    name = "virtual time"
    kernel = built_kernel()
    if kernel is not None:
        return [Trial(name, USED_BY, True, str(kernel))]
    remedy = "build it once, in some minutes"
    commands = [BUILD]
    try:
        newest_source()
    except HostError as error:
        if not error.commands:  # this host cannot have a kernel
            return [Trial.missing(name, USED_BY, error, ok=None)]
        remedy = f"{error.remedy}; then {remedy}"
        commands = [*error.commands, *commands]
    return [Trial(name, USED_BY, None, "no kernel is built for it", remedy, tuple(commands))]
