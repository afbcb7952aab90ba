"""Two nodes in one process: the lines between them, and whether they can hear each other.

What a node sees of it is what `node.messaging.association` would let it see over sockets:

- two nodes meet as soon as both have started and a connection between them can be made;
- a peer that cannot be heard (the link is cut, it is frozen, it ended without a word) is lost after ``lost_after``
  seconds, with all that is in flight; what was held up for less arrives; a frozen node notices that when it is thawed;
- nodes that lost each other meet again with the next attempt to connect, of which there is one a second, as TCP repeats
  a SYN that is not answered (RFC 6298, section 2: 1 s);
- a node that was restarted is lost and joins in one moment, a node that says goodbye has left.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from node.messaging.wire import Message

ATTEMPTS = 1.0  # s between two attempts to connect


class Flow(Protocol):
    """How bytes cross one direction of a link; times are absolute, in seconds. ``netem.flow`` has one that is TCP's."""

    def open(self, now: float) -> float:
        """A connection begins; nothing of an earlier one is in flight. Seconds until its first message may leave."""

    def send(self, now: float, size: int) -> float:
        """When a message of ``size`` bytes has arrived, after all that were sent before it; infinity if the connection
        has given up."""

    def cut(self, now: float) -> None:
        """From now on nothing crosses."""

    def restore(self, now: float) -> list[float]:
        """The opposite: when each message in flight arrives."""


class Delay:
    """A flow that takes the same time for everything."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._arrivals: deque[float] = deque()

    def open(self, now: float) -> float:
        self._arrivals.clear()
        return self._seconds

    def send(self, now: float, size: int) -> float:
        self._forget(now)
        self._arrivals.append(now + self._seconds)
        return self._arrivals[-1]

    def cut(self, now: float) -> None:
        self._forget(now)

    def restore(self, now: float) -> list[float]:
        self._arrivals = deque(now + self._seconds for _ in self._arrivals)
        return list(self._arrivals)

    def _forget(self, now: float) -> None:
        while self._arrivals and self._arrivals[0] <= now:
            self._arrivals.popleft()


@dataclass(slots=True)
class InFlight:
    """A message on its way, and how many bytes it would be on a wire."""

    message: Message
    size: int


class Line:
    """One direction between two nodes: messages in flight, first in, first out. ``deliver`` takes what arrives."""

    __slots__ = ("_deliver", "_in_flight", "down", "flow")

    def __init__(self, flow: Flow, deliver: Callable[[InFlight], None]) -> None:
        self.flow = flow
        self.down = False
        self._deliver = deliver
        self._in_flight: deque[tuple[InFlight, asyncio.TimerHandle | None]] = deque()

    def send(self, in_flight: InFlight) -> float:
        """When it arrives, as things are now."""
        arrival = self.flow.send(asyncio.get_running_loop().time(), in_flight.size)
        # Timers of one instant fire in any order; the queue keeps theirs.
        self._in_flight.append((in_flight, self._timer(arrival)))
        return arrival

    def cut(self) -> None:
        self.down = True
        self.flow.cut(asyncio.get_running_loop().time())
        self._stop_timers()

    def restore(self) -> None:
        self.down = False
        self.reschedule(self.flow.restore(asyncio.get_running_loop().time()))

    def reschedule(self, arrivals: Sequence[float]) -> None:
        """What is in flight arrives at these times; what the flow does not count as such any more, now."""
        if not self.down:
            self._stop_timers()
            waiting = [each for each, _ in self._in_flight]
            there = max(0, len(waiting) - len(arrivals))
            times = [asyncio.get_running_loop().time()] * there + list(arrivals)[len(arrivals) - len(waiting) + there :]
            self._in_flight = deque((each, self._timer(at)) for each, at in zip(waiting, times, strict=True))

    def open(self) -> float:
        """A new connection: what was in flight is gone. Seconds until its first message may leave."""
        self._stop_timers()
        self._in_flight.clear()
        return self.flow.open(asyncio.get_running_loop().time())

    def drop(self) -> None:
        """What is in flight is gone."""
        if self._in_flight:
            self.open()

    def _timer(self, arrival: float) -> asyncio.TimerHandle | None:
        if self.down or arrival == math.inf:
            return None
        return asyncio.get_running_loop().call_at(arrival, self._arrive)

    def _arrive(self) -> None:
        in_flight, _ = self._in_flight.popleft()
        self._deliver(in_flight)

    def _stop_timers(self) -> None:
        for _, timer in self._in_flight:
            if timer is not None:
                timer.cancel()


class End(Protocol):
    """A node, as a pair knows it."""

    node: str
    patience: float  # s of silence after which it takes a peer for lost
    frozen: bool

    def knows(self, peer: str) -> bool: ...

    def meet(self, peer: str, reason: str) -> None:
        """The peer is there; if it was so before, it is lost first, for this reason."""

    def lose(self, peer: str, reason: str) -> None: ...


class NodePair:
    """A pair of nodes; ``line_to`` each, and an ``end`` for each that runs now (None: it does not)."""

    def __init__(self, lines_to: dict[str, Line]) -> None:
        self.line_to = lines_to
        self.ends: dict[str, End | None] = dict.fromkeys(lines_to)
        self._up = False
        self._joined = False  # the two count each other as present
        self._met: list[End | None] = []  # who they were when they met
        self._unaware: list[End] = []  # frozen when they were lost to each other, so that they have not noticed yet
        self._since = 0.0  # when they last stopped hearing each other, or lost each other
        self._timer: asyncio.TimerHandle | None = None

    def update(self) -> None:
        """Something has changed: see whether the two can hear each other, and go by that."""
        up = self._can_hear()
        loop = asyncio.get_running_loop()
        if up != self._up:
            self._up = up
            self._stop_timer()
            ends = list(self.ends.values())
            if not up:
                self._since = loop.time()
                if self._joined:
                    self._timer = loop.call_later(self._patience(), self._lose)
            elif not self._joined or ends != self._met:
                wait = (self._since - loop.time()) % ATTEMPTS if ends == self._met else 0.0
                setup = max([line.open() for line in self.line_to.values()])
                self._timer = loop.call_later(wait + setup, self._join)
        if self._timer is None and any(not end.frozen for end in self._unaware):
            self._timer = loop.call_later(self._patience(), self._notice)

    def end(self, node: str, farewell: InFlight | None) -> None:
        """``node`` ends: with a farewell after all that it has sent, or without a word."""
        (peer,) = self.line_to.keys() - {node}
        arrival = self.line_to[peer].send(farewell) if farewell is not None and self._joined else None
        if farewell is None:
            self.line_to[peer].drop()  # what it sent goes with it
        self.line_to[node].drop()
        self._unaware = [end for end in self._unaware if end.node != node]
        self.ends[node] = None
        self.update()
        if self.ends[peer] is None:
            self._stop_timer()
        elif arrival is not None and arrival < math.inf and self._timer is not None:
            # Should the farewell not arrive after all, silence is noticed.
            self._stop_timer()
            self._timer = asyncio.get_running_loop().call_at(arrival + self._patience(), self._lose)

    def stall(self) -> None:
        """A connection has given up: the two lose each other, and connect again."""
        if self._timer is None:
            self._since = asyncio.get_running_loop().time()
            self._timer = asyncio.get_running_loop().call_later(self._patience(), self._reconnect)

    def part(self) -> None:
        """A farewell has arrived."""
        self._joined = False
        self._stop_timer()

    def _can_hear(self) -> bool:
        one, other = self.ends.values()
        return (
            one is not None
            and other is not None
            and not one.frozen
            and not other.frozen
            and one.knows(other.node)
            and other.knows(one.node)
            and not any(line.down for line in self.line_to.values())
        )

    def _patience(self) -> float:
        return min(end.patience for end in self.ends.values() if end is not None)

    def _join(self) -> None:
        self._timer = None
        before, self._met = self._met, list(self.ends.values())
        self._joined = True
        self._unaware.clear()
        one, other = self.ends.values()
        assert one is not None
        assert other is not None
        for end, peer in ((one, other), (other, one)):
            restarted = bool(before) and peer not in before
            end.meet(peer.node, "it was restarted" if restarted else "it had lost this node")

    def _lose(self) -> None:
        now = asyncio.get_running_loop().time()
        silence, self._since = now - self._since, now
        self._timer = None
        self._joined = False
        for line in self.line_to.values():
            line.drop()
        self._unaware = [end for end in self.ends.values() if end is not None and end in self._met]
        self._tell_silence(silence)

    def _notice(self) -> None:
        """Nodes that were frozen have heard nothing since they were thawed."""
        self._timer = None
        self._tell_silence(self._patience())

    def _tell_silence(self, seconds: float) -> None:
        for end in [end for end in self._unaware if not end.frozen]:
            self._unaware.remove(end)
            (peer,) = self.line_to.keys() - {end.node}
            end.lose(peer, f"silent for {seconds:.1f} s")

    def _reconnect(self) -> None:
        self._lose()
        self._up = False
        self.update()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
