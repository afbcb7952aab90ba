"""What the orchestrator asks of this driver before and at the beginning of a run."""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack
from pathlib import Path

from orchestrator.drivers.base import Environment
from orchestrator.drivers.local import FIRST, connected, files_of_peers, sweep
from orchestrator.drivers.namespaces.driver import NamespacesDriver
from orchestrator.errors import HostError
from orchestrator.fabric.hub import Hub
from orchestrator.host.commands import absent
from orchestrator.host.directory import RunDirectory
from orchestrator.host.namespaces import refusal
from orchestrator.planning.plan import Plan


def missing() -> list[HostError]:
    """Commands, and namespaces that this user may make."""
    refused = refusal() if shutil.which("unshare") is not None else None
    return absent() + ([refused] if refused is not None else [])


def open_files(plan: Plan, workers: int) -> int:
    """Those of the orchestrator, of the switch, or of the node with most peers."""
    return FIRST + max(len(plan.nodes), files_of_peers(plan))


async def open_environment(plan: Plan, directory: RunDirectory, stack: AsyncExitStack, workers: int) -> Environment:
    """A hub, and a fork server behind it that warms up while the link engine starts."""
    stack.push_async_callback(sweep, directory.run)
    hub = await Hub.open(directory.run, directory.path)
    stack.push_async_callback(hub.close)
    driver = NamespacesDriver(hub, directory, Path(plan.data_directory))
    stack.push_async_callback(driver.close)
    await driver.open()
    return await connected(driver, hub, plan, directory, stack)
