"""Delivery of messages over a connection that may break: each arrives once, and in order.

ZeroMQ connects again when a connection has broken, but what was on its way is lost. So the messages of each direction
are numbered. A sender keeps each until the other side has confirmed it, and repeats what it has kept after a new
connection. A receiver takes only the next number.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgpack

from orchestrator.drivers.hosts.agents.calls import plain

Message = dict[str, Any]

NUMBERED = "numbered"


class Delivery:
    """Both directions of one side. A message that must arrive is sent as {type: NUMBERED, number, message, heard}.
    ``heard`` is the last number that has arrived from the other side."""

    def __init__(self) -> None:
        self._sent = 0
        self._heard = 0
        self._kept: deque[tuple[int, bytes]] = deque()

    def packed(self, message: Message) -> bytes:
        """A message as it is sent. It is kept until it is confirmed. TypeError if it cannot be sent."""
        number = self._sent + 1
        numbered = {"type": NUMBERED, "number": number, "message": message}
        data = self.packed_once(numbered)
        self._sent = number
        self._kept.append((number, data))
        return data

    def packed_once(self, message: Message) -> bytes:
        """A message without a number, as it is sent: it may be lost."""
        stamped = {**message, "heard": self._heard}
        data: bytes = msgpack.packb(stamped, default=plain)
        return data

    def take(self, received: Message) -> Message | None:
        """The message in what was received; None if it has arrived before, or if one before it is missing."""
        confirmed = received["heard"]
        while self._kept:
            number, _ = self._kept[0]
            if number > confirmed:
                break
            self._kept.popleft()
        if received["type"] != NUMBERED:
            return received
        expected = self._heard + 1
        if received["number"] != expected:
            return None
        self._heard = expected
        message: Message = received["message"]
        return message

    def unconfirmed(self) -> list[bytes]:
        """The messages to repeat after a new connection, in their order."""
        return [data for _, data in self._kept]
