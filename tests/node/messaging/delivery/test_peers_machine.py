"""A node and its peers, driven at random over connections that take nothing at times: a sender waits only for a present
peer with a full queue, and each message is sent once, reported as undelivered, or still queued."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from hypothesis.strategies import booleans, sampled_from, sets

from node.assignment import Timeouts
from node.messaging.delivery.association import Association, Joined, Left, Lost, Received, Undelivered
from node.messaging.delivery.peers import Peers
from node.messaging.delivery.stream import QUEUE_MESSAGES
from node.messaging.wire import Message
from node.runtime.clock import VirtualLoop

TIMEOUTS = Timeouts(beat=1.0, lost_after=8.0)
NAMES = ("b", "c")
PEER = sampled_from(NAMES)
STEP = 0.5  # s
MEETING = 40.0  # s; see test_association_machine
FLUSH = 2.0  # s
TURNS = 5  # of the event loop, after which nothing is ready any more


class Driven(RuleBasedStateMachine):
    """Node a is `Peers`, each peer an `Association`. ``cut`` has the peers to and from which nothing goes, and since
    when. ``begun`` and ``done`` count the messages to a peer: of all calls of ``send``, and of those that have
    returned."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.cut: dict[str, float] = {}
        self.connected: set[str] = set()
        self.flight: dict[str, deque[list[bytes]]] = {name: deque() for name in NAMES}  # on the way to each peer
        self.lives = dict.fromkeys(NAMES, 0)
        self.present: set[str] = set()
        self.begun: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.undelivered: Counter[str] = Counter()
        self.sending: dict[asyncio.Task[None], set[str]] = {}
        self.batches = 0
        self.got: defaultdict[tuple[str, int], list[int]] = defaultdict(list)  # by peer and batch
        self.far = {name: self._started(name) for name in NAMES}
        self._do(self._start, STEP)  # which they meet in

    def _do(self, work: Callable[[], object], seconds: float = 0.0) -> None:
        """Do something in the event loop, and let time pass."""

        async def run() -> None:
            work()
            await self._settle()
            for _ in range(round(seconds / STEP)):
                await asyncio.sleep(STEP)
                self._exchange()
                await self._settle()

        self.loop.run_until_complete(run())

    async def _settle(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self.sending = {task: to for task, to in self.sending.items() if not task.done()}

    def _start(self) -> None:
        self.peers = Peers("a", NAMES, "a-0", TIMEOUTS, self._attend)
        self.peers.start()
        self.reading = asyncio.create_task(self._read())

    def _started(self, name: str) -> Association:
        return Association("a", f"{name}-{self.lives[name]}", TIMEOUTS, self.loop.time())

    def _attend(self, association: Association) -> None:
        """As a transport does: a new connection drops what the former had under way."""
        peer = association.peer
        if association.state == "left":
            self.connected.discard(peer)
        elif association.reopen:
            self.flight[peer].clear()
            association.open(self.loop.time())
            self.connected.add(peer)
        while peer in self.connected - self.cut.keys():
            frames = association.outbound.peek()
            if frames is None:
                return
            self.flight[peer].append([bytes(frame) for frame in frames])
            self.peers.taken(association)

    async def _read(self) -> None:
        """Check the order of events: joined, lost or left."""
        while True:
            event = await self.peers.receive()
            if isinstance(event, Joined):
                assert event.peer not in self.present
                self.present.add(event.peer)
            elif isinstance(event, Lost | Left):
                self.present.remove(event.peer)
            elif isinstance(event, Undelivered):
                self.undelivered[event.peer] += event.messages

    def _exchange(self) -> None:
        """Let the peers receive what is under way to them, and answer."""
        now = self.loop.time()
        for name in NAMES:
            far = self.far[name]
            if name not in self.cut:
                while self.flight[name]:
                    self._note(name, far.receive(self.flight[name].popleft(), now))
            self._note(name, far.tick(now, 0.0))
            if far.reopen:
                far.open(now)
            while name not in self.cut:
                frames = far.outbound.peek()
                if frames is None:
                    break
                packet = [bytes(frame) for frame in frames]
                far.taken(now)
                self.peers.handle(name, packet)

    def _note(self, name: str, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, Received):
                message = event.message
                self.got[name, message.fields["batch"]].append(message.round or 0)

    @rule(to=sets(PEER, min_size=1), replace=booleans())
    def send(self, to: set[str], replace: bool) -> None:
        self._send(to, 3, replace)

    @rule(to=sets(PEER, min_size=1))
    def flood(self, to: set[str]) -> None:
        self._send(to, QUEUE_MESSAGES + 5, replace=False)

    def _send(self, to: set[str], count: int, replace: bool) -> None:
        """Send messages one after the other."""
        kind = "state" if replace else "model"
        self.batches += 1
        batch = {"batch": self.batches}

        async def send_all() -> None:
            for number in range(count):
                self.begun.update(to)
                await self.peers.send(sorted(to), Message(kind, "a", number, batch), replace)
                self.done.update(to)

        def begin() -> None:
            self.sending[asyncio.create_task(send_all())] = to

        self._do(begin)

    @rule(seconds=sampled_from([0.5, 3.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self._do(lambda: None, seconds)

    @rule(name=PEER)
    def cut_off(self, name: str) -> None:
        self.cut.setdefault(name, self.loop.time())

    @rule(name=PEER)
    def mend(self, name: str) -> None:
        self.cut.pop(name, None)

    @rule(name=PEER)
    def restart(self, name: str) -> None:
        """A peer crashes and starts again, as another incarnation."""
        self.lives[name] += 1
        self.flight[name].clear()
        self.far[name] = self._started(name)

    @rule(name=PEER)
    def leave(self, name: str) -> None:
        """A peer says goodbye. It comes back when it is restarted."""
        self.far[name].outbound.close()

    @invariant()
    def presence_is_what_events_have_said(self) -> None:
        states = {name: association.state for name, association in self.peers.associations.items()}
        assert self.present == {name for name in NAMES if states[name] == "present"}

    @invariant()
    def a_silent_peer_is_lost_in_time(self) -> None:
        """The node looks twice a beat."""
        latest = self.loop.time() - TIMEOUTS.lost_after - TIMEOUTS.beat
        assert not self.present & {name for name, since in self.cut.items() if since < latest}

    @invariant()
    def senders_wait_for_full_queues_of_present_peers_only(self) -> None:
        for to in self.sending.values():
            full = {name for name in to & self.present if not self.peers.associations[name].outbound.room}
            assert full

    @invariant()
    def queues_have_an_end(self) -> None:
        """Beyond it is at most a message that replaces others, and one of its kind that is partly sent."""
        for association in self.peers.associations.values():
            assert len(association.outbound._queue) <= QUEUE_MESSAGES + 2

    @invariant()
    def each_message_is_sent_undelivered_or_queued(self) -> None:
        sent: Counter[str] = Counter()
        for row in self.peers.traffic():
            if row.kind in ("model", "state") and row.direction == "sent":
                sent[row.peer] += row.messages
        for name in NAMES:
            queued = len(self.peers.associations[name].outbound._queue)
            accounted = sent[name] + self.undelivered[name] + queued
            assert self.done[name] <= accounted <= self.begun[name]

    @invariant()
    def messages_of_a_sender_arrive_in_order_and_once(self) -> None:
        for numbers in self.got.values():
            assert numbers == sorted(set(numbers))

    def teardown(self) -> None:
        """When nothing is cut any more, all peers come, no one waits, and a message arrives. A goodbye then reaches the
        peer whose connection takes it, and is given up for the other one after ``flush`` s."""
        self.cut.clear()
        for name in NAMES:
            self.restart(name)
        self._do(lambda: None, MEETING)
        assert self.present == set(NAMES)
        assert not self.sending
        assert self.begun == self.done
        self._send(set(NAMES), 1, replace=False)
        self._do(self._exchange)
        assert [self.got[name, self.batches] for name in NAMES] == [[0], [0]]
        self.cut_off("c")
        start = self.loop.time()
        self.loop.run_until_complete(self.peers.stop(FLUSH))
        assert self.loop.time() == start + FLUSH
        self._do(self._exchange)
        assert [self.far[name].state for name in NAMES] == ["left", "present"]
        self._do(self.reading.cancel)
        self.loop.close()


TestDriven: Any = Driven.TestCase
TestDriven.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
