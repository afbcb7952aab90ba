"""What an attacker could make of the embeddings that clients shared: DFFKE's appendix C, where the scenario asked."""

from __future__ import annotations

from typing import Any

from orchestrator.results.history import History
from orchestrator.results.rows import Event

EVENT = "inversion"


def inversions(history: History) -> dict[str, Event]:
    """What each client found when it compared reconstructions with its pictures; the last, if it did so twice."""
    found = {event.node: event for event in history.events(EVENT)}
    return {node: found[node] for node in history.nodes if node in found}


def inversion(history: History) -> dict[str, Any] | None:
    """For the summary: how many pictures were attacked, and of each kind of guess its mean squared error and the share
    that was recognised, as means over the clients; None without an attack."""
    found = [event.data for event in inversions(history).values()]
    if not found:
        return None
    scores = [each["scores"] for each in found]
    means = {
        kind: {name: sum(of[kind][name] for of in scores) / len(scores) for name in figures}
        for kind, figures in scores[0].items()
    }
    return {"samples": sum(each["samples"] for each in found), **means}
