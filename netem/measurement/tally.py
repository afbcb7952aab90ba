"""Counts, rates and delays from the arrivals of a measurement."""

from __future__ import annotations

import math
from collections.abc import Sequence

UDP_HEADERS = 14 + 20 + 8
TCP_HEADERS = 14 + 20 + 20 + 12  # the 12 are the timestamp option


def train_counts(numbers: Sequence[int], sent: int) -> dict[str, int]:
    """Counts for a train of numbers 0..sent-1, from ``numbers`` in order of arrival. sent, received (different
    numbers), bursts (unbroken runs of missing numbers), duplicated (repeated arrivals of a number), reordered (first
    arrivals behind a higher number: RFC 4737, section 3)."""
    seen: set[int] = set()
    reordered = 0
    highest = -1
    for number in numbers:
        if number not in seen:
            reordered += number < highest
            highest = max(highest, number)
            seen.add(number)
    bursts = sum(number not in seen and (number == 0 or number - 1 in seen) for number in range(sent))
    return {
        "sent": sent,
        "received": len(seen),
        "bursts": bursts,
        "duplicated": len(numbers) - len(seen),
        "reordered": reordered,
    }


def arrival_rate(times: Sequence[float], bits: float) -> float | None:
    """Arrival rate in bit/s of equal frames of `bits`; None for fewer than four. The median over all pairs half the
    series apart: a pause of the receiver affects few of them."""
    half = len(times) // 2
    if half < 2:
        return None
    spans = sorted(later - earlier for earlier, later in zip(times, times[half:], strict=False))
    middle = spans[len(spans) // 2]
    return half * bits / middle if middle > 0 else None


def stream_rate(stamps: Sequence[tuple[float, int]], segment: int) -> float | None:
    """Rate in bit/s of a TCP stream on the link, from (time, bytes so far); without its first third, the ramp-up. Each
    `segment` of payload crosses the link in a frame with Ethernet, IP and TCP headers: 1448 in 1514."""
    if len(stamps) < 2:
        return None
    last, total = stamps[-1]
    ramp = stamps[0][0] + (last - stamps[0][0]) / 3
    first, before = next(stamp for stamp in stamps if stamp[0] >= ramp)
    if last <= first:
        return None
    return (total - before) * 8 / (last - first) * (segment + TCP_HEADERS) / segment


class Flood:
    """Collects the arriving datagrams of a saturation."""

    def __init__(self) -> None:
        self.size = 0
        self._times: list[float] = []
        self._delays: list[float] = []
        self._fastest = math.inf

    @property
    def count(self) -> int:
        return len(self._times)

    @property
    def waited(self) -> float:
        """Seconds by which the last datagram took longer than the fastest one."""
        return self._delays[-1] - self._fastest

    def add(self, sent: float, arrived: float, payload: int) -> None:
        self.size = payload
        self._times.append(arrived)
        self._delays.append(arrived - sent)
        self._fastest = min(self._fastest, self._delays[-1])

    def result(self) -> dict[str, float | None]:
        """rate (bit/s), and loaded: the same until the last datagram was sent, without what came from queues later;
        queue_delay: delay of the slowest datagram minus that of the fastest. What arrived: bytes of frames, and when it
        began and ended (first, last)."""
        rate = arrival_rate(self._times, (self.size + UDP_HEADERS) * 8)
        if self._delays:
            delay = max(self._delays) - min(self._delays)
        else:
            delay = None
        arrived: dict[str, float | None] = {"bytes": len(self._times) * (self.size + UDP_HEADERS)}
        if self._times:
            sent = max(at - took for at, took in zip(self._times, self._delays, strict=True))
            loaded = arrival_rate([at for at in self._times if at <= sent], (self.size + UDP_HEADERS) * 8)
            arrived |= {"loaded": loaded, "first": min(self._times), "last": max(self._times)}
        return {"rate": rate, "queue_delay": delay, **arrived}
