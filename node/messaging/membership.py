"""The presence of a node's peers. Pure: it only follows the events it is given."""

from __future__ import annotations

from collections.abc import Iterable


class Membership:
    """The peers by state. ``present``: peers that said hello and were not lost since. ``left``: peers that said
    goodbye; the node does not wait for them. ``expected``: the first peers."""

    def __init__(self, expected: Iterable[str]) -> None:
        self.expected = frozenset(expected)
        self.present: set[str] = set()
        self.left: set[str] = set()
        self._awaited = set(self.expected)  # they have neither joined nor left so far

    def join(self, peer: str) -> None:
        self.present.add(peer)
        self._awaited.discard(peer)
        self.left.discard(peer)

    def lose(self, peer: str) -> None:
        self.present.discard(peer)

    def leave(self, peer: str) -> None:
        self.present.discard(peer)
        self.left.add(peer)
        self._awaited.discard(peer)

    @property
    def complete(self) -> bool:
        """Whether every expected peer was present once, or has left."""
        return not self._awaited
