"""The senders with messages that a role used, and those with messages that it never received, for the record. Pure:
`Exchange` reports them.

A message counts when a gathering returns it, or ``receive`` if it has tensors, unless the role refuses it before it
gathers again or receives the same kind again. Each kind of a sender is reported once. So the record has a few names
for each peer, however long the run is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from node.messaging.gathering import Gather
from node.messaging.wire import Message

_Key = tuple[str, bool]  # the kind of a message, and whether it was gathered


class Contributions:
    """What one role has done with the messages of its peers."""

    def __init__(self) -> None:
        self._reported: defaultdict[_Key, set[str]] = defaultdict(set)
        self._new: dict[_Key, set[str]] = {}  # that may still be refused
        self._last: tuple[str, int] | None = None  # kind and round of the last gathering, if it needed answers
        self._wanted: set[str] = set()  # kinds that the role ever waited for
        self._unreceived: defaultdict[str, set[str]] = defaultdict(set)  # senders by kind

    def want(self, kinds: Iterable[str]) -> None:
        """Note that the role waits for these kinds."""
        self._wanted.update(kinds)

    def gathered(self, gather: Gather, messages: Collection[Message]) -> None:
        """Note what a gathering returned."""
        if gather.quorum == 0:
            self._last = None
        else:
            self._last = (gather.kind, gather.round)
        senders = {message.sender for message in messages}
        self._new[gather.kind, True] = senders

    def received(self, message: Message) -> None:
        """Note what ``receive`` returned."""
        if message.tensors:
            key = (message.kind, False)
            senders = self._new.setdefault(key, set())
            senders.add(message.sender)

    def refuse(self, message: Message) -> tuple[str, int] | None:
        """Note that the role does not use a message. Returns the kind and the round of the gathering if
        nothing of it is left and it needed answers."""
        for gathered in (True, False):
            key = (message.kind, gathered)
            senders = self._new.get(key, set())
            if message.sender not in senders:
                continue
            senders.discard(message.sender)
            if gathered and not senders:
                return self._last
        return None

    def news(
        self,
        gathered: bool,
        kinds: Collection[str] | None,
    ) -> list[tuple[str, list[str]]]:
        """Kinds, and the senders that count now and did not before. Called before the role gathers, or receives these
        ``kinds``."""
        news = []
        for kind, was_gathered in list(self._new):
            if was_gathered != gathered:
                continue
            if kinds is not None and kind not in kinds:
                continue
            key = (kind, gathered)
            senders = self._new.pop(key)
            fresh = senders - self._reported[key]
            if fresh:
                self._reported[key] |= fresh
                news.append((kind, sorted(fresh)))
        return news

    def leave(self, waiting: Iterable[tuple[str, str]]) -> None:
        """Note messages (kind, sender) that are left over, because they are dropped or because the role has ended."""
        for kind, sender in waiting:
            if kind not in self._wanted:
                self._unreceived[kind].add(sender)

    def forget(self, peers: Collection[str]) -> None:
        for senders in self._reported.values():
            senders.difference_update(peers)

    def unreceived(self) -> dict[str, list[str]]:
        """The senders of messages of each kind that the role never waited for."""
        names = {}
        for kind, senders in sorted(self._unreceived.items()):
            names[kind] = sorted(senders)
        return names
