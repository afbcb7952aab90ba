"""Which messages answer whom: quorum, late and superseded messages. Pure: no waiting, no clock.

The rules. Somebody who gathers waits for every peer that is present, and for a quorum (a share or a number) of those
that have not left. A message of a round that was gathered already is *late*: it is thrown away, or kept to stand in for
a peer that has not answered when the next gathering of its kind ends. A message of a round to come waits for it. Who
only receives wants the newest message of each sender; older ones are *superseded*. Of two answers of one peer the last
counts. An answer that holds NaN or an infinity is *not finite*: it is left out, and its sender is not waited for any
longer.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass, field
from typing import Literal

from node.messaging.finite import not_finite
from node.messaging.wire import Message

KEPT = 16  # messages of one kind and sender that wait to be taken
KEPT_OF_SENDER = 64  # the same of all its kinds together
KEPT_BYTES = 1 << 28  # of the tensors of those, but always the newest message

Fate = Literal["late", "superseded", "not_finite"]
Remark = tuple[Fate, Message]


def needed(quorum: float, members: int) -> int:
    """The least whole number of ``members`` that is the fraction ``quorum`` of them, and at least one."""
    return min(members, max(1, math.ceil(quorum * members - 1e-9)))  # 0.55 of 100 is 55, whatever floats make of it


@dataclass
class Gather:
    """A round of waiting for ``kind`` messages of ``round`` from ``peers``."""

    kind: str
    round: int
    peers: frozenset[str]
    quorum: float | None
    count: int | None = None  # in place of the quorum
    answers: dict[str, Message] = field(default_factory=dict)
    missing: set[str] = field(init=False)
    left_out: set[str] = field(default_factory=set)  # who answered with what is not finite

    def __post_init__(self) -> None:
        self.missing = set(self.peers)

    def answer(self, message: Message) -> list[Remark]:
        self.missing.discard(message.sender)
        if not_finite(message.tensors):
            self.left_out.add(message.sender)
            return [("not_finite", message)]
        self.answers[message.sender] = message
        return []

    def wants(self, message: Message) -> bool:
        return message.kind == self.kind and message.sender in self.peers and message.round in (self.round, None)

    def need(self, left: Set[str]) -> int:
        """How many answers are enough; a quorum of 0 needs none."""
        members = len(self.peers) - len(self.peers & left)
        if self.quorum is None:
            return min(self.count or 0, members)
        return 0 if self.quorum == 0 else needed(self.quorum, members)

    def complete(self, present: Set[str], left: Set[str]) -> bool:
        """Whether there is nobody left worth waiting for: all who are present answered, and they are enough."""
        return len(self.answers.keys() | self.left_out) >= self.need(left) and self.missing.isdisjoint(present)

    def result(self, left: Set[str]) -> list[Message]:
        """The answers, sorted by sender, if they are enough; else none."""
        if len(self.answers) < self.need(left):
            return []
        return [self.answers[sender] for sender in sorted(self.answers)]


class Mailbox:
    """Messages that arrived and were not taken yet. ``late`` says what becomes of late ones."""

    def __init__(self, late: Literal["discard", "keep"]) -> None:
        self._late = late
        self._arrivals = 0
        self._waiting: dict[tuple[str, str], list[tuple[int, Message]]] = {}
        self._gathers: list[Gather] = []
        self._least_round: dict[tuple[str, str], int] = {}  # what is older has been gathered
        self._stand_ins: dict[tuple[str, str], Message] = {}

    def put(self, message: Message) -> list[Remark]:
        """A message arrived."""
        for gather in self._gathers:
            if gather.wants(message):
                return gather.answer(message)
        slot = (message.kind, message.sender)
        if message.round is not None and message.round < self._least_round.get(slot, 0):
            return self._put_late(message)
        self._arrivals += 1
        before = self._waiting.get(slot, [])
        waiting = [each for each in before if message.round is None or each[1].round != message.round]
        self._waiting[slot] = [*waiting, (self._arrivals, message)]
        remarks: list[Remark] = [("superseded", self._oldest(slot))] if len(waiting) == KEPT else []
        return remarks + self._make_room(message.sender)

    def take(self, kinds: Collection[str], sender: str | None = None) -> tuple[Message | None, list[Remark]]:
        """The newest message of the sender (of this one, if one is given) and kind that waited longest, and what it
        supersedes."""
        slots = [slot for slot in self._waiting if slot[0] in kinds and sender in (None, slot[1])]
        if not slots:
            return None, []
        *older, (_, newest) = self._waiting.pop(min(slots, key=lambda slot: self._waiting[slot][-1][0]))
        return newest, [("superseded", message) for _, message in older]

    def begin(self, gather: Gather) -> list[Remark]:
        """From now on, messages that the gathering wants are its answers, those that wait already included."""
        remarks: list[Remark] = []
        self._gathers.append(gather)
        for slot in self._slots(gather):
            self._least_round[slot] = max(gather.round, self._least_round.get(slot, 0))
            for _, message in self._waiting.pop(slot, []):
                remarks += self.put(message)
        return remarks

    def end(self, gather: Gather) -> None:
        """The gathering is over: late messages that were kept stand in for those whose answers it does not have."""
        self._gathers.remove(gather)
        for slot in self._slots(gather):
            self._least_round[slot] = max(gather.round + 1, self._least_round.get(slot, 0))
            stand_in = self._stand_ins.pop(slot, None)
            if stand_in is not None:
                gather.answers.setdefault(stand_in.sender, stand_in)

    def _put_late(self, message: Message) -> list[Remark]:
        if not_finite(message.tensors):
            return [("not_finite", message)]
        if self._late == "keep":
            self._stand_ins[message.kind, message.sender] = message
        return [("late", message)]

    def _make_room(self, sender: str) -> list[Remark]:
        """Give up the oldest messages of a sender that has too many waiting, or too large ones."""
        slots = [slot for slot in self._waiting if slot[1] == sender]
        remarks: list[Remark] = []
        count = sum(len(self._waiting[slot]) for slot in slots)
        size = sum(_size(message) for slot in slots for _, message in self._waiting[slot])
        while count > KEPT_OF_SENDER or (size > KEPT_BYTES and count > 1):
            message = self._oldest(min(slots, key=lambda slot: self._waiting.get(slot, [(math.inf,)])[0][0]))
            count, size = count - 1, size - _size(message)
            remarks.append(("superseded", message))
        return remarks

    def _oldest(self, slot: tuple[str, str]) -> Message:
        """Taken out."""
        (_, message), *rest = self._waiting.pop(slot)
        if rest:
            self._waiting[slot] = rest
        return message

    @staticmethod
    def _slots(gather: Gather) -> Iterable[tuple[str, str]]:
        return [(gather.kind, peer) for peer in sorted(gather.peers)]


def _size(message: Message) -> int:
    return sum(tensor.nbytes for tensor in message.tensors.values())
