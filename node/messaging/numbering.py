"""The numbering of rounds and edge rounds. Pure.

If edges make several rounds with their devices in one round of the run, the messages between an edge and its devices
are numbered by edge round, and all others by round. The record distinguishes the two: ``round`` is always the run's.
``edge_round`` is added if a message was numbered by edge round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from node.assignment import Assignment, Relation


@dataclass(frozen=True)
class EdgeRounds:
    """A round has ``within`` edge rounds. Messages from or to ``peers`` are numbered by edge round."""

    within: int = 1
    peers: frozenset[str] = frozenset()

    @classmethod
    def of(cls, assignment: Assignment, params: Any) -> Self:
        """The edge rounds of a node: an edge counts them with its devices, a device with its edge."""
        within = getattr(params, "edge_rounds", 1)
        if within == 1 or assignment.tier == "cloud":
            return cls()
        relation: Relation = "child" if assignment.tier == "edge" else "parent"
        peers = frozenset(assignment.related(relation))
        return cls(within, peers)

    def numbers(self, round: int | None, peer: str) -> dict[str, Any]:
        """The record's fields for the ``round`` of a message from or to ``peer``: the round, and its edge round if it
        has one."""
        if round is None or round < 1 or peer not in self.peers:
            return {"round": round}
        run_round = (round - 1) // self.within + 1
        return {"round": run_round, "edge_round": round}
