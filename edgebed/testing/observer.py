"""What a program reports about its messages and its work, so that `edgebed limits --faults` can judge it.

    observer = Observer()
    message = observer.next_message(100)
    connection.send(message)
    observer.sent(message)              # after the library has accepted it
    observer.received(other)            # a message of a peer
    observer.peer_lost("connection closed")
    observer.training_started(2)        # a client, in round 2
    observer.fault_may_begin()

Each call prints a line ``::edgebed {"event": …}``, which becomes an event of the run's record. This file needs only
Python's standard library: without edgebed in the program's environment, copy it next to the program. Programs in other
languages print the same lines.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

SENT = "message sent"
RECEIVED = "message received"
PEER_LOST = "peer lost"
PEER_FOUND = "peer found"
TRAINING_STARTED = "training started"
TRAINING_ENDED = "training ended"
FAULT_MAY_BEGIN = "fault may begin"


class Observer:
    """Reports of one process. Messages have numbers that no other process uses, also after a restart."""

    def __init__(self) -> None:
        started = time.time_ns() // 1_000_000
        self._process = f"{started:x}.{os.getpid():x}"
        self._number = 0

    def next_message(self, size: int) -> bytes:
        """A message with the next number, of ``size`` bytes if its number needs no more."""
        self._number += 1
        return f"{self._process}.{self._number}:".encode().ljust(size, b"x")

    def sent(self, message: bytes) -> None:
        """The library has accepted a message, which it should deliver."""
        report(SENT, number=_number(message))

    def received(self, message: bytes) -> None:
        """A message of a peer has arrived."""
        report(RECEIVED, number=_number(message))

    def peer_lost(self, reason: str) -> None:
        """The library has reported, or the program has noticed, that a peer is gone."""
        report(PEER_LOST, reason=reason)

    def peer_found(self) -> None:
        """A peer is there, or there again."""
        report(PEER_FOUND)

    def training_started(self, round: int) -> None:
        """A client starts to train in this round."""
        report(TRAINING_STARTED, round=round)

    def training_ended(self, round: int) -> None:
        """A client has trained in this round, and delivers its work."""
        report(TRAINING_ENDED, round=round)

    def fault_may_begin(self) -> None:
        """The fault of the run starts now."""
        report(FAULT_MAY_BEGIN)


def report(event: str, **data: Any) -> None:
    """Print an event for the record, with its data."""
    line = json.dumps({"event": event, **data})
    print(f"::edgebed {line}\n", end="", flush=True)  # one write, so that lines of two threads do not mix


def _number(message: bytes) -> str:
    number, _, _ = message.partition(b":")
    return number.decode(errors="replace")
