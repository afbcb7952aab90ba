"""Super-packets of nodes under the kernel engine, which does not cut them: a buffer must have room for a whole one."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.fabric.base import LinkChange
from orchestrator.fabric.namespaces import wiring
from orchestrator.fabric.namespaces.hub import IP_BATCH, Hub
from orchestrator.fabric.tc.kernel_links import KernelLinks


class SuperPackets:
    """``pids``: of a process in the network namespace of each attached node."""

    def __init__(self, hub: Hub, links: KernelLinks) -> None:
        self.pids: dict[str, int] = {}
        self._hub = hub
        self._links = links

    async def limit(self, changes: Sequence[LinkChange]) -> None:
        """Let nodes make no super-packets that a changed link would have no room for. Only a change that the plan does
        not know of needs it."""
        for change in changes:
            if change.profile is None:
                continue
            source = change.source
            most = wiring.segments_of(change.profile)
            if most is None or most >= self._links.most_segments(source):
                continue
            if source not in self.pids:
                continue
            line = wiring.segments_line(most)
            pid = self.pids[source]
            refused, _, _ = await self._hub.attempt(IP_BATCH, pid=pid, stdin=line)
            if not refused:
                self._links.limit_segments(source, most)
