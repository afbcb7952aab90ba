"""Record the messages of nodes, and which of them are bad."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from orchestrator.results.record.writer import Record
from orchestrator.run.nodes.messages import LONGEST_TEXT, problem

EVENT = "bad_message"
TOLD = 10  # bad messages of one node that are recorded one by one; after that only when their number has doubled


class Hearing:
    """Puts the messages of ``nodes`` into the record. A bad message becomes an event "bad_message" of its node.
    ``reason`` says why, and ``count`` is the number of bad messages of that node so far."""

    def __init__(self, nodes: Collection[str], record: Record, clock: Callable[[], float]) -> None:
        self.bad: Counter[str] = Counter()
        self._reported: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}  # of each node's last bad message
        self._nodes = nodes
        self._record = record
        self._clock = clock

    def take(self, node: str, message: Mapping[str, Any]) -> bool:
        """Record a message. False if it is bad; the caller must then ignore it."""
        if reason := problem(message, self._nodes):
            self._refuse(node, reason)
            return False
        t, record = self._clock(), self._record
        match message["type"]:
            case "register":
                record.resources(t, node, 0.0, 0)
                record.traffic_from_zero(node)
            case "beat":
                record.resources(t, node, message["cpu"], message["rss"], message.get("memory_pss"))
            case "event":
                data = {key: value for key, value in message.items() if key not in ("type", "name", "round")}
                record.event(t, node, message["name"], message.get("round"), data)
            case "metric":
                scope = message["values"].get("scope", "train")
                for name, value in message["values"].items():
                    if name != "scope" and value is not None:
                        record.metric(t, node, message.get("round"), scope, name, float(value))
            case "traffic":
                record.traffic(t, node, message["peers"])
            case "failed":
                record.event(t, node, "failed", None, {"error": message["error"][:LONGEST_TEXT]})
        return True

    def end(self) -> None:
        """Record the total number of bad messages of each node, if the record does not have it yet."""
        for node, count in self.bad.items():
            if count > self._reported[node]:
                self._tell(node)

    def _refuse(self, node: str, reason: str) -> None:
        self.bad[node] += 1
        self._reasons[node] = reason
        if self.bad[node] <= TOLD or self.bad[node] >= 2 * self._reported[node]:
            self._tell(node)

    def _tell(self, node: str) -> None:
        self._reported[node] = self.bad[node]
        self._record.event(self._clock(), node, EVENT, None, {"reason": self._reasons[node], "count": self.bad[node]})
