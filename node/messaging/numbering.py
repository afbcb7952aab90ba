"""Which round of the run an edge round belongs to. Pure.

Where edges make several rounds with their devices between two rounds of the run, the messages between an edge and its
devices are numbered by edge round, and all others by round. The record tells the two apart: ``round`` is always the
run's, and ``edge_round`` stands beside it where a message was numbered by edge round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from node.assignment import Assignment, Relation


@dataclass(frozen=True)
class EdgeRounds:
    """``within`` edge rounds make a round; messages with ``peers`` are numbered by edge round."""

    within: int = 1
    peers: frozenset[str] = frozenset()

    @classmethod
    def of(cls, assignment: Assignment, params: Any) -> Self:
        """Those of a node: an edge counts edge rounds with its devices, and a device with its edge."""
        within = getattr(params, "edge_rounds", 1)
        if within == 1 or assignment.tier == "cloud":
            return cls()
        relation: Relation = "child" if assignment.tier == "edge" else "parent"
        return cls(within, frozenset(assignment.related(relation)))

    def numbers(self, round: int | None, peer: str) -> dict[str, Any]:
        """What the record says of the ``round`` of a message from or to ``peer``: its round, and its edge round."""
        if round is None or round < 1 or peer not in self.peers:
            return {"round": round}
        return {"round": (round - 1) // self.within + 1, "edge_round": round}
