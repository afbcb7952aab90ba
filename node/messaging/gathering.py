"""The assignment of messages to gatherings: quorum, late and superseded messages. Pure: no waiting, no clock.

The rules. A gathering waits for every present peer, and for a quorum (a fraction or a number) of the peers that have
not left. A message of a round that was gathered already is *late*. It is dropped, or kept and used at the end of the
next gathering of its kind if its sender has not answered. A message of a future round waits for that round. ``receive``
takes the newest message of each sender; older ones are *superseded*. Of two answers of one peer the last counts. An
answer that holds NaN or an infinity is *not finite*. It is left out, and its sender is not waited for any longer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass, field
from typing import Literal

from node.messaging.wire import Message

KEPT = 16  # messages of one kind and sender that wait to be taken
KEPT_OF_SENDER = 64  # messages of one sender that wait, of all kinds together
KEPT_BYTES = 1 << 28  # bytes of the tensors of those messages; the newest message is always kept

Fate = Literal["late", "superseded", "not_finite"]
Remark = tuple[Fate, Message]


def needed(quorum: float, members: int) -> int:
    """The least whole number of ``members`` that makes the fraction ``quorum`` of them, and at least one."""
    return min(members, max(1, math.ceil(quorum * members - 1e-9)))  # 0.55 of 100 is 55, despite rounding of floats


@dataclass
class Gather:
    """One gathering: messages of ``kind`` and ``round`` from ``peers``. ``enough``: the number of answers that end the
    wait, whoever else may answer; later answers are left out."""

    kind: str
    round: int
    peers: frozenset[str]
    quorum: float | None
    count: int | None = None  # in place of the quorum
    enough: int | None = None
    answers: dict[str, Message] = field(default_factory=dict)
    missing: set[str] = field(init=False)
    left_out: set[str] = field(default_factory=set)  # peers whose answer is not finite

    def __post_init__(self) -> None:
        self.missing = set(self.peers)

    def answer(self, message: Message) -> list[Remark]:
        self.missing.discard(message.sender)
        if message.not_finite is not None:
            self.left_out.add(message.sender)
            return [("not_finite", message)]
        self.answers[message.sender] = message
        return []

    def wants(self, message: Message) -> bool:
        return message.kind == self.kind and message.sender in self.peers and message.round in (self.round, None)

    def need(self, left: Set[str]) -> int:
        """The number of answers that are enough. A quorum of 0 needs none."""
        members = len(self.peers) - len(self.peers & left)
        if self.quorum is None:
            return min(self.count or 0, members)
        if self.quorum == 0:
            return 0
        return needed(self.quorum, members)

    def complete(self, present: Set[str], left: Set[str]) -> bool:
        """Whether the wait is over: all present peers have answered, and the answers are enough."""
        if self.enough is not None and len(self.answers) >= self.enough:
            return True
        if not self.missing.isdisjoint(present):
            return False
        return len(self.answers) + len(self.left_out - self.answers.keys()) >= self.need(left)

    def result(self, left: Set[str]) -> list[Message]:
        """The answers, sorted by sender, if they are enough; else none."""
        if len(self.answers) < self.need(left):
            return []
        return [self.answers[sender] for sender in sorted(list(self.answers)[: self.enough])]


class Mailbox:
    """Messages that arrived and were not taken yet. ``late`` says what happens to late messages."""

    def __init__(self, late: Literal["discard", "keep"]) -> None:
        self._late = late
        self._arrivals = 0
        self._waiting: dict[str, dict[str, list[tuple[int, Message]]]] = {}  # by sender and kind
        self._gathers: list[Gather] = []
        self._least_round: defaultdict[str, dict[str, int]] = defaultdict(dict)  # by kind; earlier ones were gathered
        self._stand_ins: defaultdict[str, dict[str, Message]] = defaultdict(dict)  # by kind and sender

    def put(self, message: Message) -> list[Remark]:
        """Store a message that arrived, or give it to the gathering that wants it."""
        for gather in self._gathers:
            if gather.wants(message):
                return gather.answer(message)
        kind = message.kind
        sender = message.sender
        round = message.round
        if round is not None and round < self._least_round.get(kind, {}).get(sender, 0):
            return self._put_late(message)
        self._arrivals += 1
        waiting = self._waiting.setdefault(sender, {})
        if not waiting:  # as nearly always, and one message has room
            waiting[kind] = [(self._arrivals, message)]
            return []
        others = [each for each in waiting.get(kind, ()) if round is None or each[1].round != round]
        waiting[kind] = [*others, (self._arrivals, message)]
        remarks: list[Remark] = [("superseded", _oldest(waiting, kind))] if len(others) == KEPT else []
        return remarks + _make_room(waiting)

    def take(self, kinds: Collection[str], sender: str | None = None) -> tuple[Message | None, list[Remark]]:
        """Take the newest message of the sender and kind that waited longest, and the messages it supersedes.

        With ``sender`` only messages of that sender are taken. None if there is no message.
        """
        first = math.inf
        for waiting in self._waiting.values() if sender is None else (self._waiting.get(sender, {}),):
            for each in kinds:
                if each in waiting and waiting[each][-1][0] < first:
                    first, message = waiting[each][-1]
        if first == math.inf:
            return None, []
        *older, (_, newest) = self._pop(message.kind, message.sender)
        return newest, [("superseded", message) for _, message in older]

    def begin(self, gather: Gather) -> list[Remark]:
        """Begin a gathering. Messages that it wants become its answers, including those that wait already."""
        remarks: list[Remark] = []
        self._gathers.append(gather)
        self._expect(gather, gather.round)
        for sender in sorted(gather.peers & self._waiting.keys()):
            for _, message in self._pop(gather.kind, sender):
                remarks += self.put(message)
        return remarks

    def end(self, gather: Gather) -> None:
        """End a gathering. Late messages that were kept stand in for missing answers of their senders."""
        self._gathers.remove(gather)
        self._expect(gather, gather.round + 1)
        stand_ins = self._stand_ins[gather.kind]
        for sender in sorted(gather.peers & stand_ins.keys()):
            gather.answers.setdefault(sender, stand_ins.pop(sender))

    def waiting(self, peers: Collection[str] | None = None) -> Iterator[tuple[str, str]]:
        """The kind and sender of messages that were not taken; from these peers, or from all."""
        for sender, kinds in self._waiting.items():
            if peers is None or sender in peers:
                yield from ((kind, sender) for kind in kinds)

    def forget(self, peers: Collection[str]) -> None:
        """Forget all messages of these peers, and which of their rounds have been gathered."""
        for peer in peers:
            self._waiting.pop(peer, None)
            for least in self._least_round.values():
                least.pop(peer, None)
            for stand_ins in self._stand_ins.values():
                stand_ins.pop(peer, None)

    def _put_late(self, message: Message) -> list[Remark]:
        if message.not_finite is not None:
            return [("not_finite", message)]
        if self._late == "keep":
            self._stand_ins[message.kind][message.sender] = message
        return [("late", message)]

    def _pop(self, kind: str, sender: str) -> list[tuple[int, Message]]:
        """Remove and return the messages of a kind and sender."""
        waiting = self._waiting.get(sender, {})
        popped = waiting.pop(kind, [])
        if not waiting:
            self._waiting.pop(sender, None)
        return popped

    def _expect(self, gather: Gather, round: int) -> None:
        """Count messages of its kind and peers as late if they are of a round before this one."""
        least = self._least_round[gather.kind]
        for peer in gather.peers:
            if least.get(peer, 0) < round:
                least[peer] = round


def _make_room(waiting: dict[str, list[tuple[int, Message]]]) -> list[Remark]:
    """Drop the oldest messages of a sender with too many messages or bytes waiting."""
    remarks: list[Remark] = []
    messages = [message for of_kind in waiting.values() for _, message in of_kind]
    count = len(messages)
    size = sum(map(_size, messages))
    while count > KEPT_OF_SENDER or (size > KEPT_BYTES and count > 1):
        message = _oldest(waiting, min(waiting, key=lambda kind: waiting[kind][0][0]))
        count = count - 1
        size = size - _size(message)
        remarks.append(("superseded", message))
    return remarks


def _oldest(waiting: dict[str, list[tuple[int, Message]]], kind: str) -> Message:
    """Remove and return the oldest message of the kind."""
    (_, message), *rest = waiting.pop(kind)
    if rest:
        waiting[kind] = rest
    return message


def _size(message: Message) -> int:
    return sum(tensor.nbytes for tensor in message.tensors.values())
