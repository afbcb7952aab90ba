"""How large the pieces of a message should be. No sockets, no clock."""

from __future__ import annotations

from collections import deque

SMALLEST_CHUNK = 4 << 10  # bytes
LARGEST_CHUNK = 512 << 10
_RATES_KEPT = 64
_SHARE = 16  # of what a connection took so far that one piece may be


class ChunkSize:
    """How large a piece of a message should be: what the link carries in ``seconds``.

    A receiver notices a piece only when it is complete, and would take a peer for lost that spends minutes on one.
    The slowest of the last rates counts, and only a share of what the connection took so far, since at first, and after
    each pause, it is buffers that fill and not the link that carries.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rates: deque[float] = deque(maxlen=_RATES_KEPT)
        self._total = 0
        self._taken = 0  # since the connection last refused
        self._since: float | None = None  # when it last refused

    @property
    def size(self) -> int:
        carried = min(self._rates) * self._seconds if self._rates else LARGEST_CHUNK
        return int(max(SMALLEST_CHUNK, min(carried, self._total / _SHARE, LARGEST_CHUNK)))

    def taken(self, size: int) -> None:
        """The connection took a packet of ``size`` bytes."""
        self._total += size
        self._taken += size

    def refused(self, now: float) -> None:
        """The connection would not take another packet yet."""
        if self._since is None:
            self._since, self._taken = now, 0
        elif self._taken and now > self._since:
            self._rates.append(self._taken / (now - self._since))
            self._since, self._taken = now, 0

    def idle(self) -> None:
        """There is nothing to send; the time until there is says nothing about the link."""
        self._since, self._taken = None, 0
