"""When the frames of cross traffic come: a function of the seed and the time, and of nothing else.

All frames have FULL_FRAME bytes. Time is divided into slots with random draws of their own, so any time can be reached
without those before it, and the same seed gives the same frames whatever else is on the channel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import count
from random import Random

from netem.media.profile import CrossTraffic
from netem.profile import FULL_FRAME

SLOT = 64  # frames of "poisson" or periods of "on-off" in a slot, on average

Row = tuple[float, float]
"""Seconds, and bit/s from then on."""
Span = tuple[float, float, float]
"""Seconds, and bit/s from then on until the last of these seconds."""
Period = tuple[str, float, float, float]
"""Name, start, end, bit/s."""


def arrivals(traffic: CrossTraffic, seed: int, since: float = 0.0) -> Iterator[float]:
    """The times of the frames from ``since`` on, in order; seconds from the start of the traffic.

    ``constant``, and the single periods of ``on-off`` and ``trace``: frames at equal distances, the first one at a
    random part of that distance. ``poisson``: independent exponential distances. ``on-off``: the two states have
    independent exponential durations; each slot starts in the stationary state.
    """
    if traffic.kind == "poisson":
        return _poisson(traffic.rate, seed, since)
    return _paced(traffic, seed, since)


def mean_rates(traffic: CrossTraffic, begin: float, end: float) -> Iterator[Row]:
    """(seconds, mean bit/s) of the time from ``begin`` to ``end``: one pair, for ``trace`` one for each row in it."""
    rows: Sequence[Row] = ((0.0, 0.0), *traffic.rows)
    if traffic.kind != "trace":
        rows = ((0.0, traffic.mean_rate()),)
    for at, rate, following in _with_ends(rows):
        until = min(end, following)
        seconds = until - max(begin, at)
        if seconds > 0:
            yield seconds, rate


def _with_ends(rows: Sequence[Row]) -> Iterator[Span]:
    """(seconds, bit/s, seconds until which it has this rate) of each row."""
    starts = [at for at, _ in rows]
    ends = [*starts[1:], math.inf]
    for row, end in zip(rows, ends, strict=True):
        at, rate = row
        yield at, rate, end


def peak(traffic: CrossTraffic) -> float:
    """The highest rate in bit/s, apart from random fluctuations."""
    if traffic.kind != "trace":
        return traffic.rate
    rates = [rate for _, rate in traffic.rows]
    return max(rates, default=0.0)


def _poisson(rate: float, seed: int, since: float) -> Iterator[float]:
    if not rate:
        return
    density = rate / (8 * FULL_FRAME)
    seconds = SLOT / density
    first_slot = int(since / seconds)
    for slot in count(first_slot):
        draw = Random(f"{seed} {slot}")
        end = (slot + 1) * seconds
        at = slot * seconds + draw.expovariate(density)
        while at < end:
            if at >= since:
                yield at
            at += draw.expovariate(density)


def _paced(traffic: CrossTraffic, seed: int, since: float) -> Iterator[float]:
    for name, begin, end, rate in periods(traffic, seed, since):
        if not rate or end <= since:
            continue
        distance = 8 * FULL_FRAME / rate
        phase = Random(f"{seed} {name} phase").random()
        first = begin + phase * distance
        passed = math.ceil((since - first) / distance)
        for number in count(max(0, passed)):
            at = first + number * distance
            if at >= end:
                break
            yield at


def periods(traffic: CrossTraffic, seed: int, since: float) -> Iterator[Period]:
    """Each period of a constant rate; all that end after ``since``, and a few more."""
    if traffic.kind == "on-off":
        yield from _on_off(traffic, seed, since)
        return
    if traffic.kind == "trace":
        rows = traffic.rows
    else:
        rows = ((0.0, traffic.rate),)
    numbered = enumerate(_with_ends(rows))
    for number, (at, rate, end) in numbered:
        yield str(number), at, end, rate


def _on_off(traffic: CrossTraffic, seed: int, since: float) -> Iterator[Period]:
    cycle = traffic.on + traffic.off
    seconds = SLOT * cycle
    first_slot = int(since / seconds)
    for slot in count(first_slot):
        draw = Random(f"{seed} {slot}")
        at = slot * seconds
        end = (slot + 1) * seconds
        on = draw.random() < traffic.on / cycle
        while at < end:
            mean = traffic.on if on else traffic.off
            rate = traffic.rate if on else 0.0
            duration = 0.0
            if mean:
                duration = draw.expovariate(1 / mean)
            last = min(end, at + duration)
            yield f"{slot} {at}", at, last, rate
            at = last
            on = not on
