"""Counts, rates and delays from the arrivals of a measurement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import sub

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
    bursts = 0
    arrived_before = True
    for number in range(sent):
        arrived = number in seen
        if arrived_before and not arrived:
            bursts += 1
        arrived_before = arrived
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
    pairs = zip(times, times[half:], strict=False)
    spans = sorted(later - earlier for earlier, later in pairs)
    middle = spans[len(spans) // 2]
    if middle <= 0:
        return None
    return half * bits / middle


def stream_rate(stamps: Sequence[tuple[float, int]], segment: int) -> float | None:
    """Rate in bit/s of a TCP stream on the link, from (time, bytes so far); without its first third, the ramp-up. Each
    `segment` of payload crosses the link in a frame with Ethernet, IP and TCP headers: 1448 in 1514."""
    if not stamps:
        return None
    start, _ = stamps[0]
    last, total = stamps[-1]
    ramp = start + (last - start) / 3
    first, before = next(stamp for stamp in stamps if stamp[0] >= ramp)
    if last <= first:
        return None
    payload_rate = (total - before) * 8 / (last - first)
    return payload_rate * (segment + TCP_HEADERS) / segment


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
        delay = arrived - sent
        self.size = payload
        self._times.append(arrived)
        self._delays.append(delay)
        self._fastest = min(self._fastest, delay)

    def result(self) -> dict[str, float | None]:
        """rate (bit/s), and loaded: the same until the last datagram was sent, without what came from queues later;
        queue_delay: delay of the slowest datagram minus that of the fastest. What arrived: bytes of frames, and when it
        started and ended (first, last)."""
        frame = self.size + UDP_HEADERS
        result: dict[str, float | None] = {
            "rate": arrival_rate(self._times, frame * 8),
            "queue_delay": None,
            "bytes": len(self._times) * frame,
        }
        if not self._times:
            return result
        result["queue_delay"] = max(self._delays) - min(self._delays)
        sending_times = map(sub, self._times, self._delays)
        last_sent = max(sending_times)
        under_load = [time for time in self._times if time <= last_sent]
        result["loaded"] = arrival_rate(under_load, frame * 8)
        result["first"] = min(self._times)
        result["last"] = max(self._times)
        return result
