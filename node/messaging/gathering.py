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
from collections.abc import Collection, Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import Literal

from node.messaging.wire import Message

KEPT = 16  # messages of one kind and sender that wait to be taken
KEPT_OF_SENDER = 64  # messages of one sender that wait, of all kinds together
KEPT_BYTES = 1 << 28  # bytes of the tensors of those messages; the newest message is always kept

Fate = Literal["late", "superseded", "not_finite"]
Remark = tuple[Fate, Message]
_Arrival = tuple[int, Message]  # its number, and the message
_Arrivals = dict[str, list[_Arrival]]  # messages of one sender by kind, the oldest first


def needed(quorum: float, members: int) -> int:
    """The least whole number of ``members`` that makes the fraction ``quorum`` of them, and at least one."""
    least = math.ceil(quorum * members - 1e-9)  # 0.55 of 100 is 55, despite rounding of floats
    return min(members, max(1, least))


@dataclass
class Gather:
    """One gathering: messages of ``kind`` and ``round`` from ``peers``. ``enough``: the number of answers that end the
    wait, also if other peers could still answer; later answers are left out."""

    kind: str
    round: int
    peers: frozenset[str]
    quorum: float | None
    count: int | None = None  # in place of the quorum
    enough: int | None = None
    answers: dict[str, Message] = field(default_factory=dict)
    missing: set[str] = field(init=False)
    left_out: set[str] = field(default_factory=set)  # peers with an answer that is not finite

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
        if message.kind != self.kind:
            return False
        if message.sender not in self.peers:
            return False
        return message.round in (self.round, None)

    def need(self, left: Set[str]) -> int:
        """The number of answers that are enough. A quorum of 0 needs none."""
        absent = self.peers & left
        members = len(self.peers) - len(absent)
        if self.quorum is None:
            return min(self.count or 0, members)
        if self.quorum == 0:
            return 0
        return needed(self.quorum, members)

    def complete(self, present: Set[str], left: Set[str]) -> bool:
        """Whether the wait is over: all present peers have answered, and the answers are enough."""
        answers = len(self.answers)
        if self.enough is not None and answers >= self.enough:
            return True
        if not self.missing.isdisjoint(present):
            return False
        only_left_out = self.left_out - self.answers.keys()
        return answers + len(only_left_out) >= self.need(left)

    def result(self, left: Set[str]) -> list[Message]:
        """The answers, sorted by sender, if they are enough; else none."""
        if len(self.answers) < self.need(left):
            return []
        first = list(self.answers)[: self.enough]
        return [self.answers[sender] for sender in sorted(first)]


class Mailbox:
    """Messages that arrived and were not taken yet. ``late`` says what happens to late messages."""

    def __init__(self, late: Literal["discard", "keep"]) -> None:
        self._late = late
        self._arrivals = 0
        self._waiting: dict[str, _Arrivals] = {}  # by sender
        self._gathers: list[Gather] = []
        # By kind and sender; earlier rounds were gathered.
        self._least_round: defaultdict[str, dict[str, int]] = defaultdict(dict)
        # By kind and sender.
        self._stand_ins: defaultdict[str, dict[str, Message]] = defaultdict(dict)

    def put(self, message: Message) -> list[Remark]:
        """Store a message that arrived, or give it to the gathering that wants it."""
        for gather in self._gathers:
            if gather.wants(message):
                return gather.answer(message)
        kind = message.kind
        sender = message.sender
        round = message.round
        if round is not None:
            least_of_kind = self._least_round.get(kind, {})
            if round < least_of_kind.get(sender, 0):
                return self._put_late(message)
        self._arrivals += 1
        arrival = (self._arrivals, message)
        waiting = self._waiting.setdefault(sender, {})
        if not waiting:  # as nearly always, and one message has room
            waiting[kind] = [arrival]
            return []
        others = waiting.get(kind, [])
        if round is not None:
            # Of two messages of one round the last counts.
            others = [other for other in others if other[1].round != round]
        waiting[kind] = [*others, arrival]
        remarks: list[Remark] = []
        if len(others) == KEPT:
            oldest = _oldest(waiting, kind)
            remarks.append(("superseded", oldest))
        return remarks + _make_room(waiting)

    def take(
        self,
        kinds: Collection[str],
        sender: str | None = None,
    ) -> tuple[Message | None, list[Remark]]:
        """Take the newest message of the sender and kind that waited longest, and the messages it supersedes.

        With ``sender`` only messages of that sender are taken. None if there is no message.
        """
        senders: Iterable[_Arrivals]
        if sender is None:
            senders = self._waiting.values()
        else:
            senders = (self._waiting.get(sender, {}),)
        first = math.inf
        for waiting in senders:
            for kind in kinds:
                if kind not in waiting:
                    continue
                arrival, newest = waiting[kind][-1]
                if arrival < first:
                    first = arrival
                    message = newest
        if first == math.inf:
            return None, []
        arrivals = self._pop(message.kind, message.sender)
        remarks: list[Remark] = []
        for _, older in arrivals[:-1]:
            remarks.append(("superseded", older))
        return message, remarks

    def begin(self, gather: Gather) -> list[Remark]:
        """Start a gathering. Messages that it wants become its answers, including those that wait already."""
        remarks: list[Remark] = []
        self._gathers.append(gather)
        self._expect(gather, gather.round)
        senders = gather.peers & self._waiting.keys()
        for sender in sorted(senders):
            arrivals = self._pop(gather.kind, sender)
            for _, message in arrivals:
                remarks += self.put(message)
        return remarks

    def end(self, gather: Gather) -> None:
        """End a gathering. Late messages that were kept stand in for missing answers of their senders."""
        self._gathers.remove(gather)
        self._expect(gather, gather.round + 1)
        stand_ins = self._stand_ins[gather.kind]
        senders = gather.peers & stand_ins.keys()
        for sender in sorted(senders):
            late = stand_ins.pop(sender)
            gather.answers.setdefault(sender, late)

    def waiting(
        self,
        peers: Collection[str] | None = None,
    ) -> Iterator[tuple[str, str]]:
        """The kind and sender of messages that were not taken; from these peers, or from all."""
        for sender, kinds in self._waiting.items():
            if peers is not None and sender not in peers:
                continue
            for kind in kinds:
                yield kind, sender

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

    def _pop(self, kind: str, sender: str) -> list[_Arrival]:
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


def _make_room(waiting: _Arrivals) -> list[Remark]:
    """Drop the oldest messages of a sender with too many messages or bytes waiting."""
    remarks: list[Remark] = []
    messages: list[Message] = []
    for arrivals in waiting.values():
        messages.extend(message for _, message in arrivals)
    count = len(messages)
    size = sum(map(_size, messages))
    while count > KEPT_OF_SENDER or (size > KEPT_BYTES and count > 1):
        oldest_kind = min(waiting, key=lambda kind: waiting[kind][0][0])
        message = _oldest(waiting, oldest_kind)
        count -= 1
        size -= _size(message)
        remarks.append(("superseded", message))
    return remarks


def _oldest(waiting: _Arrivals, kind: str) -> Message:
    """Remove and return the oldest message of the kind."""
    oldest, *rest = waiting.pop(kind)
    if rest:
        waiting[kind] = rest
    _, message = oldest
    return message


def _size(message: Message) -> int:
    return sum(tensor.nbytes for tensor in message.tensors.values())
