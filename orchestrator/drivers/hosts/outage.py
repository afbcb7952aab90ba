"""The outage of a host: how long its nodes wait for it, and from when on they may start elsewhere. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.drivers.hosts.agents.settings import LEASE

ENDING = 5.0  # s for an agent to end the links and the nodes after its lease


@dataclass(frozen=True)
class OutageTimeouts:
    """Times in seconds since a host counts as lost.

    ``grace``: from then on its nodes may start elsewhere. A network may have been cut in one direction only: then the
    agent has received messages until the host counted as lost, and ends links and nodes by its lease. An agent that
    only restarts is back before, because it is started again within seconds.
    ``end``: from then on the host counts as gone for good.
    """

    grace: float = LEASE + ENDING
    end: float = 60.0


@dataclass
class HostOutage:
    """``since``: when the host was lost, on the event loop's clock. ``opening``: how often it is being opened.
    ``waiting``: nodes that wait to start. ``stuck``: why a node cannot start elsewhere."""

    host: str
    since: float
    reason: str
    opening: int = 0
    waiting: set[str] = field(default_factory=set)
    stuck: dict[str, str] = field(default_factory=dict)

    def due(
        self,
        node: str,
        timeouts: OutageTimeouts,
        *,
        may_move: bool,
    ) -> tuple[float, bool]:
        """The time at which a node that waits has to do something, and whether that is to move, or to give up."""
        if may_move and not self.opening and node not in self.stuck:
            return self.since + timeouts.grace, True
        return self.since + timeouts.end, False
