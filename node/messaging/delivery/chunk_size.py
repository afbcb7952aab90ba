"""The size of the pieces of a message. No sockets, no clock."""

from __future__ import annotations

from collections import deque

SMALLEST_CHUNK = 4 << 10  # bytes
LARGEST_CHUNK = 512 << 10
_RATES_KEPT = 64
_SHARE = 16  # one piece may be 1 / _SHARE of the bytes that the connection took so far


class ChunkSize:
    """The size of a piece of a message: the bytes that the link carries in ``seconds``.

    A receiver notices a piece only when it is complete. It would count a peer as lost that spends minutes on one piece.
    The size follows the slowest of the last rates. It is at most a share of the bytes that the connection took so far,
    since at first, and after each pause, the bytes only fill buffers.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rates: deque[float] = deque(maxlen=_RATES_KEPT)
        self._total = 0
        self._taken = 0  # bytes since the connection last refused
        self._since: float | None = None  # when the connection last refused

    @property
    def size(self) -> int:
        if self._rates:
            carried = min(self._rates) * self._seconds
        else:
            carried = LARGEST_CHUNK
        share = self._total / _SHARE
        most = min(carried, share, LARGEST_CHUNK)
        return int(max(SMALLEST_CHUNK, most))

    def taken(self, size: int) -> None:
        """Account for a packet of ``size`` bytes that the connection took."""
        self._total += size
        self._taken += size

    def refused(self, now: float) -> None:
        """Measure the rate: the connection refused another packet at ``now``."""
        if self._since is None:
            self._since = now
            self._taken = 0
        elif self._taken and now > self._since:
            self._rates.append(self._taken / (now - self._since))
            self._since = now
            self._taken = 0

    def idle(self) -> None:
        """Pause the measurement while there is nothing to send: idle time is no rate of the link."""
        self._since = None
