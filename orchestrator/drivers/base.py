"""What a driver is: it makes a node's process in namespaces of its own, and tells when the process ends; and what the
module that `orchestrator.scenario.drivers` names offers.

Powers that not every driver has are protocols of their own; a scenario that needs one its driver lacks is refused
before anything starts.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from node.assignment import Assignment
from orchestrator.errors import HostError
from orchestrator.fabric.base import Fabric, Handle
from orchestrator.fabric.hub import Hub
from orchestrator.host.directory import RunDirectory
from orchestrator.planning.plan import NodePlan, Plan
from orchestrator.scenario.drivers import DRIVERS

LACK_OF_MEMORY = "killed by the kernel: it needed more memory than its hardware has\n"
"""What a driver adds to the log of such a node."""


@dataclass(frozen=True)
class Exit:
    """A life of a node has ended: by itself with ``code``, or by a signal (then ``code`` is its negative)."""

    node: str
    handle: Handle
    code: int


class Driver(Protocol):
    """Five verbs; ``exits`` delivers each process that ended, ``lost`` is set when the driver itself broke down:
    ``breakdown`` says what of it and where to look."""

    name: str
    breakdown: str
    exits: asyncio.Queue[Exit]
    lost: asyncio.Event

    async def open(self) -> None:
        """Get ready to start nodes; HostError with the remedy if this host cannot."""

    async def start(self, node: NodePlan, assignment: Path, log: Path) -> Handle:
        """Start a node, in a network namespace of its own.

        A node that ends at once was started all the same: its Exit follows, never before the handle is returned.
        """

    async def kill(self, node: str) -> None:
        """SIGKILL; its Exit follows."""

    def notes(self) -> list[str]:
        """What this driver could not honour on this host, in words for the record."""

    async def close(self) -> None:
        """End every node still there and release what ``open`` took."""


@runtime_checkable
class CanPause(Protocol):
    """Freeze a node's process and let it go on."""

    async def pause(self, node: str) -> None: ...

    async def resume(self, node: str) -> None: ...


class Control(Protocol):
    """The orchestrator's side of the control plane."""

    def messages(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Each message with the name of the node it came from, for ever."""

    async def send(self, node: str, message: Mapping[str, Any]) -> None:
        """Send to a node; one that does not run misses it."""


@dataclass(frozen=True)
class Environment:
    """What a run stands on: where its nodes live, what links them, how they are spoken to.

    ``hub`` is the namespace that all links pass, where there are packets to pass it; ``assignments`` are those that
    nodes read from a file.
    """

    driver: Driver
    fabric: Fabric
    control: Control
    hub: Hub | None = None
    assignments: Mapping[str, Assignment] = field(default_factory=dict)


class DriverEntry(Protocol):
    """The module of a driver. Importing it is quick; what is slow to import is imported by its functions."""

    def missing(self) -> list[HostError]:
        """What this host lacks, each with its remedy; empty if a run can begin. Nothing is made."""

    def open_files(self, plan: Plan, workers: int) -> int:
        """The most files that one process of a run has open."""

    async def open_environment(
        self, plan: Plan, directory: RunDirectory, stack: AsyncExitStack, workers: int
    ) -> Environment:
        """Open all that a run stands on; ``stack`` closes it in the reverse order. ``workers`` processes train where
        nodes are simulated. HostError if this host cannot."""


def entry_of(driver: str) -> DriverEntry:
    """The entry of a driver, by its name in scenarios."""
    return cast(DriverEntry, importlib.import_module(DRIVERS[driver].module))
