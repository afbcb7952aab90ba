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
from orchestrator.fabric.underlay import FramesReading

SETTLED = 1.0  # s

Direction = tuple[str, str]


@dataclass
class _Balance:
    """From a first reading on: its counters, the latest ones, and earlier numbers of sent frames with their times."""

    first: tuple[int, int]
    latest: tuple[int, int]
    sent: deque[tuple[float, int]] = field(default_factory=deque)
    missing: int = 0


class Frames:
    """``homes``: the present host of each node."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = homes
        self._balances: dict[Direction, _Balance] = {}
        self._before: dict[Direction, tuple[int, int]] = {}  # sent and missing in balances that are closed

    def read(self, t: float, counters: Mapping[str, Counted]) -> None:
        """Take the counters of the hosts that are there, at ``t`` seconds."""
        for away in {host for direction in self._balances for host in direction} - counters.keys():
            self._close(each for each in list(self._balances) if away in each)
        for source in counters:
            for target in counters:
                if source != target and (now := self._between(source, target, counters)) is not None:
                    self._add(t, (source, target), now)

    def begin_anew(self) -> None:
        """Nodes have moved: their earlier counters are of another direction."""
        self._close(list(self._balances))

    def readings(self) -> tuple[FramesReading, ...]:
        """Of the directions in which frames were sent."""
        found = []
        for direction in sorted({*self._balances, *self._before}):
            sent, missing = self._total(direction)
            if sent:
                found.append(FramesReading(*direction, sent, missing))
        return tuple(found)

    def _between(self, source: str, target: str, counters: Mapping[str, Counted]) -> tuple[int, int] | None:
        """The counters of the frames that were sent and of those that arrived; None if a host does not count."""
        sent = counters[source].sent_to
        came = counters[target].came_from
        if sent is None or came is None:
            return None
        there = sum(number for node, number in sent.items() if self._homes[node] == target)
        return there, sum(number for node, number in came.items() if self._homes[node] == source)

    def _add(self, t: float, direction: Direction, now: tuple[int, int]) -> None:
        balance = self._balances.get(direction)
        if balance is not None and (now[0] < balance.latest[0] or now[1] < balance.latest[1]):
            self._close([direction])  # an engine began anew
            balance = None
        if balance is None:
            balance = self._balances[direction] = _Balance(now, now)
        balance.latest = now
        sent = now[0] - balance.first[0]
        arrived = now[1] - balance.first[1]
        balance.sent.append((t, sent))
        while len(balance.sent) > 1 and balance.sent[1][0] <= t - SETTLED:
            balance.sent.popleft()
        if balance.sent[0][0] <= t - SETTLED:
            balance.missing = max(balance.missing, balance.sent[0][1] - arrived)

    def _close(self, directions: Iterable[Direction]) -> None:
        for direction in directions:
            self._before[direction] = self._total(direction)
            del self._balances[direction]

    def _total(self, direction: Direction) -> tuple[int, int]:
        sent, missing = self._before.get(direction, (0, 0))
        balance = self._balances.get(direction)
        if balance is not None:
            sent = sent + balance.latest[0] - balance.first[0]
            missing = missing + balance.missing
        return sent, missing
