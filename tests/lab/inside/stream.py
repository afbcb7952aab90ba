"""Numbered datagrams with the time they were sent, and the time at which the kernel received each. One clock."""

from __future__ import annotations

import select
import socket
import statistics
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from netem.measurement.tally import UDP_HEADERS, train_counts
from tests.lab.inside.stage import Stage
from tests.netem.traffic import SO_TIMESTAMPNS, TIMESPEC

NUMBER = struct.Struct("!I")
RECEIVE_BUFFER = 8 << 20
LINGER = 0.05  # s; when as many have come as were sent, nothing but duplicates may follow


@dataclass(frozen=True)
class Arrival:
    number: int
    delay: float  # s, from before it was sent until the receiving kernel had it
    time: float


@dataclass(frozen=True)
class Stream:
    """What was sent, at which times in seconds, as frames of how many bytes; and what came, in that order."""

    sent: Sequence[float]
    frame: int
    arrivals: Sequence[Arrival]

    @property
    def lost(self) -> int:
        return len(self.sent) - self.counts()["received"]

    @property
    def delays(self) -> list[float]:
        return [arrival.delay for arrival in self.arrivals]

    def counts(self) -> dict[str, int]:
        return train_counts([arrival.number for arrival in self.arrivals], len(self.sent))


def stream(
    stage: Stage,
    source: str,
    target: str,
    *,
    count: int,
    spacing: float = 0.001,
    gaps: Sequence[float] | None = None,
    size: int = 60,
    settle: float = 0.3,
) -> Stream:
    """Send `count` datagrams of `size` bytes every `spacing` seconds, or with these `gaps` between them.

    It ends when nothing has come for `settle` seconds, or soon after all have.
    """
    sent: list[float] = []
    arrivals: list[Arrival] = []
    filler = bytes(size - NUMBER.size)
    with stage.bound(source, socket.SOCK_DGRAM) as near, stage.bound(target, socket.SOCK_DGRAM) as far:
        near.connect(far.getsockname())
        far.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        far.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33), RECEIVE_BUFFER)
        near.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_SNDBUFFORCE", 32), RECEIVE_BUFFER)
        waiting = select.poll()  # a fraction of the system calls that an arrival would cost through `select`
        waiting.register(far, select.POLLIN)
        due = time.time()
        for number in range(count):
            left = due - time.time()
            if left > 0:
                time.sleep(left)
            sent.append(time.time())
            near.send(NUMBER.pack(number) + filler)
            due += gaps[number] if gaps else spacing
        while waiting.poll(int(1000 * (settle if len(arrivals) < count else LINGER))):
            data, ancillary, _, _ = far.recvmsg(2048, 64)
            seconds, nanoseconds = TIMESPEC.unpack(ancillary[0][2])
            number, arrived = NUMBER.unpack_from(data)[0], seconds + nanoseconds / 1e9
            arrivals.append(Arrival(number, arrived - sent[number], arrived))
    return Stream(sent, size + UDP_HEADERS, arrivals)


def overhead(stage: Stage, source: str, target: str, spacing: float = 0.002) -> float:
    """Median delay of a link as it is; of an unimpaired one: what sending, the bridge and the clocks take."""
    return statistics.median(stream(stage, source, target, count=100, spacing=spacing).delays)
