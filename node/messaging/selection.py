"""The interface by which an algorithm gets the clients of a population."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from node.messaging.wire import Message


class Selector(Protocol):
    """Selects the clients of a population, which are nodes only while they take part.

    An algorithm with rounds does not call it: ``rounds`` selects clients for each round and releases them after it, and
    ``gather`` notes the answers that counted. The leader of an asynchronous algorithm selects a client for each
    vacancy, and releases the clients that have answered. A client that goes away is released without the leader.
    """

    enough: int
    """The number of answers that end a gathering."""

    async def begin_round(self, round: int) -> None:
        """Record the parts that ended in the last round. Where rounds select clients, select those of this one."""

    async def vacancy(self) -> int:
        """Wait until a client can be selected: a place is free, and a client is there that has no part yet, nor an
        answer that may still count. Return for how many clients this is true."""

    def select(self, count: int, round: int) -> Sequence[str]:
        """Start the part of up to ``count`` clients, and return their names. They will get the model of ``round``."""

    def release(self, clients: Iterable[str]) -> None:
        """End the part of these clients. Their places are free. Their answers may count until the round ends."""

    def counted(self, messages: Sequence[Message], round: int) -> None:
        """Note the answers that made the model of ``round``."""

    def refused(self, client: str) -> None:
        """Note that the answer of a client does not count after all."""
