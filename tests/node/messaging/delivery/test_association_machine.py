"""Two nodes and their connections, driven at random: whatever breaks, messages arrive in order and once, and the nodes
meet again as soon as their connections hold."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.strategies import integers, sampled_from

from node.assignment import Timeouts
from node.messaging.delivery.association import Association, Event, Joined, Left, Lost, Received
from node.messaging.delivery.stream import Outgoing
from node.messaging.wire import Message, encode

TIMEOUTS = Timeouts(beat=1.0, lost_after=8.0)
NAMES = ("a", "b")
ENDS = sampled_from(NAMES)
SIZES = sampled_from([0, 10, 40_000])  # the largest takes several packets
STEP = 0.5  # s
MEETING = 40.0  # s; after so many beats, the hellos of a node that has restarted again and again are accepted
SILENCE = 3 * TIMEOUTS.lost_after  # s


def other(name: str) -> str:
    return "b" if name == "a" else "a"


class Nodes(RuleBasedStateMachine):
    """``sent[a]`` numbers the messages that a has put; ``got[a]`` has the numbers that arrived at a."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.lives = dict.fromkeys(NAMES, 0)
        self.sent = dict.fromkeys(NAMES, 0)
        self.got: dict[str, list[int]] = {name: [] for name in NAMES}
        self.present = dict.fromkeys(NAMES, False)
        self.flight: dict[str, deque[list[bytes]]] = {name: deque() for name in NAMES}  # on the way to each node
        self.sides = {name: self._started(name) for name in NAMES}

    def _started(self, name: str) -> Association:
        return Association(other(name), f"{name}-{self.lives[name]}", TIMEOUTS, self.now)

    def _handle(self, name: str, events: list[Event]) -> None:
        """Check the order of a node's events: joined, received, lost or left."""
        for event in events:
            if isinstance(event, Joined):
                assert not self.present[name]
                self.present[name] = True
            elif isinstance(event, Lost | Left):
                assert self.present[name]
                self.present[name] = False
            elif isinstance(event, Received):
                assert self.present[name]
                assert event.message.round is not None
                self.got[name].append(event.message.round)

    def _transmit(self, name: str, packets: int) -> None:
        """The connection of a node takes so many packets. A new one drops what the former had under way."""
        side = self.sides[name]
        if side.reopen:
            self.flight[other(name)].clear()
            side.open(self.now)
        for _ in range(packets):
            frames = side.outbound.peek()
            if frames is None:
                return
            self.flight[other(name)].append([bytes(frame) for frame in frames])
            side.taken(self.now)

    def _deliver(self, name: str, packets: int) -> list[Event]:
        events: list[Event] = []
        for _ in range(min(packets, len(self.flight[name]))):
            packet = self.flight[name].popleft()
            events += self.sides[name].receive(packet, self.now)
        self._handle(name, events)
        return events

    def _tick(self, name: str) -> list[Event]:
        events = self.sides[name].tick(self.now, 0.0)
        self._handle(name, events)
        return events

    @rule(name=ENDS, size=SIZES)
    def put(self, name: str, size: int) -> None:
        self.sent[name] += 1
        tensors = {"w": np.ones(size, np.uint8)} if size else {}
        message = Message("model", name, self.sent[name], {}, tensors)
        self.sides[name].put(Outgoing("model", *encode(message)))

    @rule(name=ENDS, packets=integers(1, 9))
    def transmit(self, name: str, packets: int) -> None:
        self._transmit(name, packets)

    @rule(name=ENDS, packets=integers(1, 9))
    def deliver(self, name: str, packets: int) -> None:
        self._deliver(name, packets)

    @rule(seconds=sampled_from([0.1, 0.9, 3.0, 9.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for name in NAMES:
            self._tick(name)

    @precondition(lambda self: any(self.flight.values()))
    @rule(name=ENDS)
    def break_connection(self, name: str) -> None:
        """What is under way to a node is lost, although its peer's connection took it."""
        self.flight[name].clear()

    @rule(name=ENDS)
    def restart(self, name: str) -> None:
        """A node crashes and starts again, as another incarnation. Its connections end."""
        self.lives[name] += 1
        for end in NAMES:
            self.flight[end].clear()
        self.sides[name] = self._started(name)
        self.present[name] = False

    @invariant()
    def messages_arrive_in_order_and_once(self) -> None:
        for name in NAMES:
            numbers = self.got[name]
            assert numbers == sorted(set(numbers))
            assert not numbers or numbers[-1] <= self.sent[other(name)]

    @invariant()
    def presence_is_what_events_have_said(self) -> None:
        for name in NAMES:
            assert self.present[name] == (self.sides[name].state == "present")

    def teardown(self) -> None:
        """With connections that hold, the nodes meet, keep each other by beats alone, and a message arrives."""
        self._connected(MEETING)
        assert self.present == dict.fromkeys(NAMES, True)
        events = self._connected(SILENCE)
        assert events == []
        for name in NAMES:
            self.put(name, 0)
            self._transmit(name, 1000)
            self._deliver(other(name), 1000)
            assert self.got[other(name)][-1] == self.sent[name]

    def _connected(self, seconds: float) -> list[Event]:
        """Let time pass while every packet arrives. Returns the events of both nodes."""
        events: list[Event] = []
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            for name in NAMES:
                events += self._tick(name)
            for name in NAMES:
                self._transmit(name, 1000)
            for name in NAMES:
                events += self._deliver(name, 1000)
        return events


TestNodes: Any = Nodes.TestCase
TestNodes.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
