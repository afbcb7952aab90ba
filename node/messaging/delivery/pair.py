"""Two nodes in one process: the lines between them, and whether they can reach each other.

A node sees the same events as `node.messaging.delivery.association` would give it over sockets:

- Two nodes meet as soon as both have started and can connect.
- A peer that cannot be reached (its link is cut, it is frozen, it ended without a goodbye) is lost after ``lost_after``
  seconds, with all messages in flight. Messages delayed for less arrive. A frozen node notices the loss when it is
  thawed.
- Nodes that lost each other meet again at the next attempt to connect. There is one attempt a second, as TCP repeats
  an unanswered SYN (RFC 6298, section 2: 1 s).
- A restarted node is lost and joins at the same time. A node that says goodbye has left.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from node.messaging.delivery.arrivals import Arrivals
from node.messaging.wire import Message

ATTEMPTS = 1.0  # s between two attempts to connect


class FlowModel(Protocol):
    """The flow of bytes in one direction of a link. Times are absolute, in seconds. ``netem.tcp.flow`` models TCP."""

    def open(self, now: float) -> float:
        """Start a connection; nothing of an earlier one is in flight. Return the seconds until the first message may
        leave."""

    def send(self, now: float, size: int) -> float:
        """Return when a message of ``size`` bytes will have arrived, after all earlier messages. Infinity if the
        connection has given up."""

    def cut(self, now: float) -> None:
        """Stop all bytes from now on."""

    def restore(self, now: float) -> list[float]:
        """Undo ``cut``. Return when each message in flight arrives."""


class Delay:
    """A flow with the same delay for every message."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._arrivals: deque[float] = deque()

    def open(self, now: float) -> float:
        self._arrivals.clear()
        return self._seconds

    def send(self, now: float, size: int) -> float:
        self._forget(now)
        arrival = now + self._seconds
        self._arrivals.append(arrival)
        return arrival

    def cut(self, now: float) -> None:
        self._forget(now)

    def restore(self, now: float) -> list[float]:
        arrivals = [now + self._seconds] * len(self._arrivals)
        self._arrivals = deque(arrivals)
        return arrivals

    def _forget(self, now: float) -> None:
        while self._arrivals and self._arrivals[0] <= now:
            self._arrivals.popleft()


@dataclass(slots=True)
class InFlight:
    """A message in flight, the same for all its receivers: its size on a wire in bytes, and the seconds between its
    arrival and its delivery."""

    message: Message
    size: int
    processing: float


class Line:
    """One direction between two nodes: messages in flight, first in, first out. ``deliver`` takes those that have
    arrived."""

    __slots__ = ("_arrivals", "_deliver", "_in_flight", "down", "flow", "plan")

    def __init__(
        self,
        flow: FlowModel,
        arrivals: Arrivals,
        deliver: Callable[[InFlight], None],
    ) -> None:
        self.flow = flow
        self.down = False
        self.plan = 0  # of the arrivals; a change of what is in flight makes another
        self._arrivals = arrivals
        self._deliver = deliver
        # With the time of its delivery, never before those ahead.
        self._in_flight: deque[tuple[float, InFlight]] = deque()

    def send(self, in_flight: InFlight) -> float:
        """Send a message. Return its arrival time in the present state of the link."""
        now = self._arrivals.loop.time()
        arrival = self.flow.send(now, in_flight.size)
        self._expect(arrival + in_flight.processing, in_flight)
        return arrival

    def cut(self) -> None:
        self.down = True
        self.plan += 1
        now = self._arrivals.loop.time()
        self.flow.cut(now)

    def restore(self) -> None:
        self.down = False
        now = self._arrivals.loop.time()
        self.reschedule(self.flow.restore(now))

    def reschedule(self, arrivals: Sequence[float]) -> None:
        """Set the arrival times of the messages in flight. Those that the flow counts as arrived are in processing."""
        if self.down:
            return
        self.plan += 1
        before = list(self._in_flight)
        now = self._arrivals.loop.time()
        arrived = max(0, len(before) - len(arrivals))
        self._in_flight.clear()
        for ready, in_flight in before[:arrived]:
            self._expect(max(ready, now), in_flight)
        under_way = before[arrived:]
        first = len(arrivals) - len(under_way)
        for (_, in_flight), arrival in zip(under_way, arrivals[first:], strict=True):
            self._expect(arrival + in_flight.processing, in_flight)

    def open(self) -> float:
        """Open a new connection; drop the messages in flight. Return the seconds until the first message may leave."""
        self.close()
        now = self._arrivals.loop.time()
        return self.flow.open(now)

    def drop(self) -> None:
        """Drop the messages in flight."""
        if self._in_flight:
            self.open()

    def close(self) -> None:
        """Drop the messages in flight for good."""
        self.plan += 1
        self._in_flight.clear()

    def arrive(self) -> None:
        """Deliver the first message in flight."""
        _, in_flight = self._in_flight.popleft()
        self._deliver(in_flight)

    def _expect(self, ready: float, in_flight: InFlight) -> None:
        """Deliver a message at ``ready``, and not before those ahead of it."""
        if self._in_flight:
            latest, _ = self._in_flight[-1]
            ready = max(ready, latest)
        self._in_flight.append((ready, in_flight))
        if not self.down and ready < math.inf:
            self._arrivals.add(ready, self)


class PairEnd(Protocol):
    """A node, as its pair sees it."""

    node: str
    patience: float  # s of silence after which it counts a peer as lost
    frozen: bool

    def meet(self, peer: str, reason: str) -> None:
        """Count the peer as present. If it was present before, it is lost first, for this reason."""

    def lose(self, peer: str, reason: str) -> None: ...


class NodePair:
    """A pair of nodes. ``line_to`` holds the line to each node, ``ends`` each node's end (None: it does not run)."""

    def __init__(self, lines_to: dict[str, Line]) -> None:
        self.line_to = lines_to
        self.ends: dict[str, PairEnd | None] = dict.fromkeys(lines_to)
        self._up = False
        self._joined = False  # the two count each other as present
        self._met: list[PairEnd | None] = []  # the ends at the time when they met
        self._unaware: list[PairEnd] = []  # ends that were frozen when the two lost each other and have not noticed yet
        self._since = 0.0  # when they last stopped reaching each other, or lost each other
        self._timer: asyncio.TimerHandle | None = None

    def update(self) -> None:
        """Check after a change whether the two can reach each other, and set the timer for the consequence."""
        up = self._can_reach()
        loop = asyncio.get_running_loop()
        if up != self._up:
            self._up = up
            self._stop_timer()
            ends = list(self.ends.values())
            if not up:
                self._since = loop.time()
                if self._joined:
                    self._start_timer(self._patience(), self._lose)
            elif not self._joined or ends != self._met:
                if ends == self._met:
                    wait = (self._since - loop.time()) % ATTEMPTS
                else:
                    wait = 0.0
                setups = [line.open() for line in self.line_to.values()]
                setup = max(setups)
                self._start_timer(wait + setup, self._join)
        thawed = any(not end.frozen for end in self._unaware)
        if thawed and self._timer is None:
            self._start_timer(self._patience(), self._notice)

    def end(self, node: str, farewell: InFlight | None) -> None:
        """End ``node``, with a farewell after all its messages, or without one."""
        (peer,) = self.line_to.keys() - {node}
        arrival = None
        if farewell is not None and self._joined:
            arrival = self.line_to[peer].send(farewell)
        if farewell is None:
            self.line_to[peer].drop()  # its messages in flight are lost with it
        self.line_to[node].drop()
        self._unaware = [end for end in self._unaware if end.node != node]
        self.ends[node] = None
        self.update()
        if self.ends[peer] is None:
            self._stop_timer()
            return
        if arrival is None or arrival == math.inf:
            return
        if self._timer is not None:
            # If the farewell does not arrive, the peer is lost because it is silent.
            self._stop_timer()
            loop = asyncio.get_running_loop()
            patience = self._patience()
            self._timer = loop.call_at(arrival + patience, self._lose)

    def stall(self) -> None:
        """Handle a connection that has given up: the two lose each other, and connect again."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._since = loop.time()
            self._start_timer(self._patience(), self._reconnect)

    def part(self) -> None:
        """End the association of the two: a farewell has arrived."""
        self._joined = False
        self._stop_timer()

    def close(self) -> None:
        """Stop all timers, and drop what is in flight."""
        self._stop_timer()
        for line in self.line_to.values():
            line.close()

    def _can_reach(self) -> bool:
        one, other = self.ends.values()
        if one is None or other is None:
            return False
        if one.frozen or other.frozen:
            return False
        return not any(line.down for line in self.line_to.values())

    def _patience(self) -> float:
        running = [end for end in self.ends.values() if end is not None]
        return min(end.patience for end in running)

    def _join(self) -> None:
        self._timer = None
        before = self._met
        self._met = list(self.ends.values())
        self._joined = True
        self._unaware.clear()
        one, other = self.ends.values()
        assert one is not None
        assert other is not None
        for end, peer in ((one, other), (other, one)):
            if before and peer not in before:
                reason = "it was restarted"
            else:
                reason = "the peer had lost this node"
            end.meet(peer.node, reason)

    def _lose(self) -> None:
        now = asyncio.get_running_loop().time()
        silence = now - self._since
        self._since = now
        self._timer = None
        self._joined = False
        for line in self.line_to.values():
            line.drop()
        self._unaware = []
        for end in self.ends.values():
            if end is not None and end in self._met:
                self._unaware.append(end)
        self._report_silence(silence)

    def _notice(self) -> None:
        """Report the loss to nodes that were frozen: they have received nothing since they were thawed."""
        self._timer = None
        self._report_silence(self._patience())

    def _report_silence(self, seconds: float) -> None:
        aware = [end for end in self._unaware if not end.frozen]
        for end in aware:
            self._unaware.remove(end)
            (peer,) = self.line_to.keys() - {end.node}
            end.lose(peer, f"silent for {seconds:.1f} s")

    def _reconnect(self) -> None:
        self._lose()
        self._up = False
        self.update()

    def _start_timer(self, seconds: float, then: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, then)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
