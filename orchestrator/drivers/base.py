"""What a driver is: it makes a node's process in namespaces of its own, and tells when the process ends.

Powers that not every driver has are protocols of their own; a scenario that needs one its driver lacks is refused
before anything starts.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from orchestrator.planning.plan import NodePlan

LACK_OF_MEMORY = "killed by the kernel: it needed more memory than its hardware has\n"
"""What a driver adds to the log of such a node."""


@dataclass(frozen=True)
class Exit:
    """A node's process has ended: by itself with ``code``, or by a signal (then ``code`` is its negative)."""

    node: str
    pid: int
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

    async def start(self, node: NodePlan, assignment: Path, log: Path) -> int:
        """Start a node; the id of its process, whose network namespace is its own.

        A node that ends at once was started all the same: its Exit follows, never before the id is returned. The id is
        0 where the process ended before anybody could see it.
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
