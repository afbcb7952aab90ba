"""Who of a node's peers is there. Pure: told what happened, it knows what follows."""

from __future__ import annotations

from collections.abc import Iterable


class Membership:
    """``present`` peers said hello and were not lost since; those that ``left`` said goodbye, and nobody waits for
    them; those ``seen`` were present at some time."""

    def __init__(self, peers: Iterable[str]) -> None:
        self.peers = frozenset(peers)
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
        """Whether every peer was there at some time, or will not come."""
        return self.peers <= self.seen | self.left
