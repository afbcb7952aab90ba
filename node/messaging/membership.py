"""Who of a node's peers is there. Pure: told what happened, it knows what follows."""

from __future__ import annotations

from collections.abc import Iterable


class Membership:
    """``present`` peers said hello and were not lost since; those that ``left`` said goodbye, and nobody waits for
    them; those ``seen`` were present at some time. ``expected`` are the peers to begin with."""

    def __init__(self, expected: Iterable[str]) -> None:
        self.expected = frozenset(expected)
        self.present: set[str] = set()
        self.left: set[str] = set()
        self.seen: set[str] = set()

    def join(self, peer: str) -> None:
        self.present.add(peer)
        self.seen.add(peer)
        self.left.discard(peer)

    def lose(self, peer: str) -> None:
        self.present.discard(peer)

    def leave(self, peer: str) -> None:
        self.present.discard(peer)
        self.left.add(peer)

    @property
    def complete(self) -> bool:
        """Whether every expected peer was there at some time, or will not come."""
        return self.expected <= self.seen | self.left
