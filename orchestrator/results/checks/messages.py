"""The check that the orchestrator could use every message of the nodes: figures that it refuses are not in the
record."""

from __future__ import annotations

from orchestrator import text
from orchestrator.results.checks.verdicts import Assessment
from orchestrator.results.facts import Facts
from orchestrator.results.record.rows import Event


def messages_accepted(history: Facts) -> Assessment | None:
    """Check that no message was refused (events ``bad_message`` with a ``count``); None if none was."""
    last: dict[str, Event] = {}
    for event in history.events("bad_message"):
        if event.node is not None and "count" in event.data:  # others are a node's own, about a peer
            last[event.node] = event
    if not last:
        return None
    said = text.some(
        f"{event.data['count']} of {node}, the last: {event.data['reason']}" for node, event in last.items()
    )
    return "fail", f"messages were refused and are not in the record: {said}"
