"""What a link engine offers the run: attach a node, shape a link, cut it, count what crossed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from netem.profile import LinkProfile
from orchestrator.planning.plan import LinkPlan, NodePlan


@dataclass(frozen=True)
class Counted:
    """Cumulative counters of links, all that have changed at least, and how well the engine itself keeps up."""

    links: Sequence[dict[str, int | str]]
    late_p99: float = 0.0  # s, how late packets left the engine since the last reading
    late_max: float = 0.0
    socket_drops: int = 0  # packets lost to the engine's own queues: loss that nobody asked for
    cpu_seconds: float = 0.0


class Fabric(Protocol):
    """A link engine. Links are directed; a pair with no link exchanges nothing."""

    engine: str

    def notes(self) -> list[str]:
        """What of the links' settings this engine could not honour here, in words for the record."""

    async def attach(self, node: NodePlan, pid: int) -> None:
        """Give the network namespace of ``pid`` its interface data0; again after a restart."""

    async def detach(self, node: NodePlan) -> None:
        """Forget a node that is gone."""

    async def shape(self, links: Sequence[LinkPlan]) -> None:
        """Make these links, or change them in place where they exist."""

    async def change(self, source: str, target: str, profile: LinkProfile) -> None:
        """Give one existing link another profile without losing what is in flight."""

    async def cut(self, source: str, target: str) -> None:
        """Let nothing cross from source to target until ``restore``."""

    async def restore(self, source: str, target: str) -> None:
        """Undo ``cut``."""

    async def counters(self) -> Counted:
        """Read the counters."""

    async def close(self) -> None:
        """Take everything down."""
