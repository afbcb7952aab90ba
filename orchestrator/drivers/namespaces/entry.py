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
    if shutil.which("unshare") is not None:
        refused = refusal()
    else:
        refused = None
    if plan is None or plan.programs:
        learning = []
    else:
        learning = missing_here(plan.accelerators)
    return absent() + ([refused] if refused is not None else []) + learning


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
    driver = (
        HoldersDriver(hub, directory, plan)
        if plan.programs
        else NamespacesDriver(
            hub,
            directory,
            Path(plan.data_directory),
            plan.accelerators,
            len(plan.nodes),
            first_to_train(plan, directory),
        )
    )
    stack.push_async_callback(driver.close)
    await driver.open()
    return await connected(driver, hub, plan, directory, stack)


def first_to_train(plan: Plan, directory: RunDirectory) -> str:
    """The assignment, without keys and peers, of the first node that trains on the processor. "" if there is none, or
    if the run has plug-ins: their code runs in confined nodes only."""
    trains = (node for node in plan.nodes if node.name in plan.shards.train and node.device == "cpu")
    node = None if plan.plugins else next(trains, None)
    if node is None:
        return ""
    return seen_from_inside(replace(assignments(plan, directory, RunKeys.none(), "")[node.name], peers=())).to_json()
