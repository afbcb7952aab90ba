"""The presence of a node's peers. Pure: it only follows the events it is given."""

from __future__ import annotations

from collections.abc import Iterable


class Membership:
    """The peers by state. ``present``: peers that said hello and were not lost since. ``left``: peers that said
    goodbye; the node does not wait for them. ``expected``: the first peers. ``awaited``: peers that were asked to come
    and have not said hello yet; only where peers come and go by design."""

    def __init__(self, expected: Iterable[str]) -> None:
        self.expected = frozenset(expected)
        self.present: set[str] = set()
        self.left: set[str] = set()
        self.awaited: set[str] = set()
        self._unseen = set(self.expected)  # they have neither joined nor left so far

    @property
    def reachable(self) -> set[str]:
        """The peers that may still answer: those that are present or awaited."""
        if self.awaited:
            return self.present | self.awaited
        return self.present

    def join(self, peer: str) -> None:
        self.present.add(peer)
        self._unseen.discard(peer)
        self.left.discard(peer)
        self.awaited.discard(peer)

    def lose(self, peer: str) -> None:
        self.present.discard(peer)
        self.awaited.discard(peer)

    def leave(self, peer: str) -> None:
        self.present.discard(peer)
        self.awaited.discard(peer)
        self.left.add(peer)
        self._unseen.discard(peer)

    def forget(self, peer: str) -> None:
        """Forget a peer that has no part in what comes."""
        for peers in (self.present, self.awaited, self.left):
            peers.discard(peer)

    @property
    def complete(self) -> bool:
        """Whether every expected peer was present once, or has left."""
        return not self._unseen
