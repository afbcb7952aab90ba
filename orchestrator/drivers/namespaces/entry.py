"""The entry of this driver, see `orchestrator.drivers.base.DriverEntry`."""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from orchestrator.drivers.base import Environment, Tell
from orchestrator.drivers.local import connected, sweep
from orchestrator.drivers.namespaces.driver import NamespacesDriver
from orchestrator.drivers.namespaces.programs import HoldersDriver
from orchestrator.errors import HostError
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.host.commands import absent
from orchestrator.host.kernel.namespaces import refusal
from orchestrator.host.training_devices import missing_here
from orchestrator.planning.assignments import assignments, seen_from_inside
from orchestrator.planning.keys import RunKeys
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory


def missing(plan: Plan | None = None) -> list[HostError]:
    """Errors for missing commands, for namespaces that this user may not make, for PyTorch and for accelerators."""
    errors = absent()
    if shutil.which("unshare") is not None:
        error = refusal()
        if error is not None:
            errors.append(error)
    if plan is not None and not plan.programs:
        errors += missing_here(plan.accelerators)
    return errors


async def open_environment(
    plan: Plan,
    directory: RunDirectory,
    stack: AsyncExitStack,
    workers: int,
    tell: Tell,
) -> Environment:
    """Open a hub and a fork server. The fork server warms up while the link engine starts."""
    stack.push_async_callback(sweep, directory.run)
    hub = await Hub.open(directory.run, directory.path)
    stack.push_async_callback(hub.close)
    driver: NamespacesDriver
    if plan.programs:
        driver = HoldersDriver(hub, directory, plan)
    else:
        driver = NamespacesDriver(
            hub,
            directory,
            Path(plan.data_directory),
            plan.accelerators,
            len(plan.nodes),
            first_to_train(plan, directory),
        )
    stack.push_async_callback(driver.close)
    await driver.open()
    return await connected(driver, hub, plan, directory, stack)


def first_to_train(plan: Plan, directory: RunDirectory) -> str:
    """The assignment, without keys and peers, of the first node that trains on the processor. "" if there is none, or
    if the run has plug-ins: their code runs in confined nodes only."""
    if plan.plugins:
        return ""
    for node in plan.nodes:
        if node.name in plan.shards.train and node.device == "cpu":
            assignment = assignments(plan, directory, RunKeys.none(), "")[node.name]
            alone = replace(assignment, peers=())
            return seen_from_inside(alone).to_json()
    return ""
