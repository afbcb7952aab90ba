"""Frames that one host sent to another and that did not arrive. Pure.

The hosts read their counters at nearly the same time, and frames are on the way then. So a frame counts as missing only
if more frames had been sent a second before than have arrived now. This never counts a frame that arrives within
`SETTLED`. It finds each missing frame at the latest when the hosts are silent for a moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from orchestrator.fabric.base import Counted
from orchestrator.record.events.network import FramesReading

SETTLED = 1.0  # s

Direction = tuple[str, str]
Reading = tuple[int, int]  # frames that were sent, and frames that arrived


@dataclass
class _Balance:
    """From a first reading on: its counters, the latest ones, and earlier numbers of sent frames with their times."""

    first: Reading
    latest: Reading
    sent: deque[tuple[float, int]] = field(default_factory=deque)
    missing: int = 0


class Frames:
    """``homes``: the present host of each node."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = homes
        self._balances: dict[Direction, _Balance] = {}
        self._before: dict[Direction, Reading] = {}  # sent and missing frames of closed balances

    def read(self, t: float, counters: Mapping[str, Counted]) -> None:
        """Take the counters of the available hosts, at ``t`` seconds."""
        for direction in list(self._balances):
            source, target = direction
            if source not in counters or target not in counters:
                self._close([direction])
        for source in counters:
            for target in counters:
                if source == target:
                    continue
                direction = (source, target)
                now = self._between(source, target, counters)
                if now is not None:
                    self._add(t, direction, now)

    def begin_anew(self) -> None:
        """Nodes have moved: their earlier counters are of another direction."""
        self._close(list(self._balances))

    def readings(self) -> tuple[FramesReading, ...]:
        """Of the directions in which frames were sent."""
        directions = {*self._balances, *self._before}
        readings = []
        for direction in sorted(directions):
            sent, missing = self._total(direction)
            if sent:
                reading = FramesReading(*direction, sent, missing)
                readings.append(reading)
        return tuple(readings)

    def _between(
        self,
        source: str,
        target: str,
        counters: Mapping[str, Counted],
    ) -> Reading | None:
        """The counters of the frames that were sent and of those that arrived; None if a host does not count."""
        sent_to = counters[source].sent_to
        came_from = counters[target].came_from
        if sent_to is None or came_from is None:
            return None
        sent = 0
        for node, frames in sent_to.items():
            if self._homes[node] == target:
                sent += frames
        arrived = 0
        for node, frames in came_from.items():
            if self._homes[node] == source:
                arrived += frames
        return sent, arrived

    def _add(self, t: float, direction: Direction, now: Reading) -> None:
        sent_now, arrived_now = now
        balance = self._balances.get(direction)
        if balance is not None:
            latest_sent, latest_arrived = balance.latest
            if sent_now < latest_sent or arrived_now < latest_arrived:
                self._close([direction])  # an engine has restarted
                balance = None
        if balance is None:
            balance = _Balance(now, now)
            self._balances[direction] = balance
        balance.latest = now
        first_sent, first_arrived = balance.first
        arrived = arrived_now - first_arrived
        sent_since = sent_now - first_sent
        balance.sent.append((t, sent_since))
        settled = t - SETTLED
        while len(balance.sent) > 1:
            next_time, _ = balance.sent[1]
            if next_time > settled:
                break
            balance.sent.popleft()
        sent_time, sent = balance.sent[0]
        if sent_time <= settled:
            missing = sent - arrived
            balance.missing = max(balance.missing, missing)

    def _close(self, directions: Iterable[Direction]) -> None:
        for direction in directions:
            self._before[direction] = self._total(direction)
            del self._balances[direction]

    def _total(self, direction: Direction) -> tuple[int, int]:
        sent, missing = self._before.get(direction, (0, 0))
        balance = self._balances.get(direction)
        if balance is not None:
            first_sent, _ = balance.first
            latest_sent, _ = balance.latest
            sent += latest_sent - first_sent
            missing += balance.missing
        return sent, missing
