"""When the frames of cross traffic come: a function of the seed and the time, and of nothing else.

All frames have FULL_FRAME bytes. Time is divided into slots with random draws of their own, so any time can be reached
without those before it, and the same seed gives the same frames whatever else is on the channel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count
from random import Random

from netem.media.profile import CrossTraffic
from netem.profile import FULL_FRAME

SLOT = 64  # frames of "poisson" or periods of "on-off" in a slot, on average


def arrivals(traffic: CrossTraffic, seed: int, since: float = 0.0) -> Iterator[float]:
    """The times of the frames from ``since`` on, in order; seconds from the beginning of the traffic.

    ``constant``, and the single periods of ``on-off`` and ``trace``: frames at equal distances, the first one at a
    random part of that distance. ``poisson``: independent exponential distances. ``on-off``: the two states have
    independent exponential durations; each slot begins in the stationary state.
    """
    if traffic.kind == "poisson":
        return _poisson(traffic.rate, seed, since)
    return _paced(traffic, seed, since)


def mean_rates(traffic: CrossTraffic, begin: float, end: float) -> Iterator[tuple[float, float]]:
    """(seconds, mean bit/s) of the time from begin to end: one pair, for ``trace`` one for each row in it."""
    if traffic.kind == "trace":
        rows = ((0.0, 0.0), *traffic.rows)
    else:
        rows = ((0.0, traffic.mean_rate()),)
    for (at, rate), following in zip(rows, [*(at for at, _ in rows[1:]), math.inf], strict=True):
        seconds = min(end, following) - max(begin, at)
        if seconds > 0:
            yield seconds, rate


def peak(traffic: CrossTraffic) -> float:
    """The highest rate in bit/s, apart from random fluctuations."""
    if traffic.kind == "trace":
        return max((rate for _, rate in traffic.rows), default=0.0)
    return traffic.rate


def _poisson(rate: float, seed: int, since: float) -> Iterator[float]:
    if not rate:
        return
    density = rate / (8 * FULL_FRAME)
    seconds = SLOT / density
    for slot in count(int(since / seconds)):
        distance = Random(f"{seed} {slot}").expovariate
        at = slot * seconds + distance(density)
        end = (slot + 1) * seconds
        while at < end:
            if at >= since:
                yield at
            at += distance(density)


def _paced(traffic: CrossTraffic, seed: int, since: float) -> Iterator[float]:
    for name, begin, end, rate in periods(traffic, seed, since):
        if not rate or end <= since:
            continue
        distance = 8 * FULL_FRAME / rate
        first = begin + Random(f"{seed} {name} phase").random() * distance
        number = max(0, math.ceil((since - first) / distance))
        while (at := first + number * distance) < end:
            yield at
            number += 1


def periods(traffic: CrossTraffic, seed: int, since: float) -> Iterator[tuple[str, float, float, float]]:
    """(name, beginning, end, bit/s) of each period of a constant rate; all that end after ``since``, and a few more."""
    if traffic.kind == "on-off":
        seconds = SLOT * (traffic.on + traffic.off)
        for slot in count(int(since / seconds)):
            draw = Random(f"{seed} {slot}")
            at = slot * seconds
            end = (slot + 1) * seconds
            on = draw.random() < traffic.on / (traffic.on + traffic.off)
            while at < end:
                mean = traffic.on if on else traffic.off
                last = min(end, at + (draw.expovariate(1 / mean) if mean else 0.0))
                yield f"{slot} {at}", at, last, traffic.rate if on else 0.0
                at = last
                on = not on
        return
    if traffic.kind == "trace":
        rows = traffic.rows
    else:
        rows = ((0.0, traffic.rate),)
    ends = [at for at, _ in rows[1:]] + [math.inf]
    for number, ((at, rate), end) in enumerate(zip(rows, ends, strict=True)):
        yield str(number), at, end, rate
