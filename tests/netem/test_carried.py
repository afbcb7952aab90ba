"""What links carry over time, as their counters show: with the packets of `netem.impair`, and in `netem.tcp.flow`.

The traces are made up in the manner of published ones: mobile broadband in a moving car, with an outage of 78 s
(Mahimahi's ATT-LTE-driving.up has one); EV-DO, with many gaps of more than a window; Starlink, which interrupts its
links every 15 s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from itertools import takewhile
from random import Random

import pytest

from netem.impair import Impairment
from netem.measurement.intervals import binomial_range
from netem.profile import FULL_FRAME, LinkProfile
from netem.schedules.traces import Trace
from netem.tcp.flow import Flow
from netem.tcp.path import SEGMENT

Made = Callable[[], tuple[list[int], float]]
BASE = LinkProfile(latency=0.001, rate=1e6, buffer_bytes=30_000_000)
BACK = LinkProfile(latency=0.001)


def lte() -> tuple[list[int], float]:
    random, t, lines = Random(1), 0.0, []
    rate = 0.5  # packets a ms
    while t < 180_000:
        rate = min(max(rate * random.lognormvariate(0, 0.05), 0.02), 2)
        t += random.expovariate(rate)
        t += 78_300 if 60_000 < t < 60_000 + 78_000 else 0
        lines.append(int(t) + 1)
    return lines, 200.0


def evdo() -> tuple[list[int], float]:
    random, t, lines = Random(2), 0.0, []
    while t < 60_000:
        t += random.choice((2, 5, 20, 60, 150, 700))
        lines += [int(t)] * random.choice((1, 1, 2))
    return lines, 150.0


def starlink() -> tuple[list[int], float]:
    random, t, lines = Random(3), 0.0, []
    while t < 32_000:
        t += random.expovariate(2)
        t += 180 if t % 15_000 < 1 else 0
        lines.append(int(t) + 1)
    return lines, 40.0


def slow() -> tuple[list[int], float]:
    return [1000], 120.0


TRACES = pytest.mark.parametrize("made", [lte, evdo, starlink, slow])
WINDOWS = pytest.mark.parametrize("window", [0.01, 0.1, 1.0])


@TRACES
@WINDOWS
def test_packets_carry_exactly_what_the_trace_does(made: Made, window: float) -> None:
    lines, seconds = made()
    trace = Trace("t", tuple(lines), window)
    impairment = Impairment(BASE, seed=1)
    for change in takewhile(lambda each: each.at <= seconds, trace.changes(BASE)):
        # All windows so far are over: what has left the queue is what the trace let cross.
        arrived = impairment.counted(change.at + BASE.latency).delivered
        assert arrived == pytest.approx(trace.crossed(change.at), abs=1.01), change.at
        impairment.change(change.profile, change.at)
        while impairment.backlog(change.at) < (change.profile.rate or 0) * window / 8 + FULL_FRAME:
            assert impairment.offer(change.at, FULL_FRAME)


@pytest.mark.slow
@TRACES
@WINDOWS
def test_the_model_carries_what_the_trace_does(made: Made, window: float) -> None:
    lines, seconds = made()
    trace = Trace("t", tuple(lines), window)
    flow = Flow(BASE, BACK, seed=1)
    flow.send(0.0, 2 * trace.crossed(seconds) * SEGMENT)
    for change in takewhile(lambda each: each.at <= seconds, trace.changes(BASE)):
        arrived = flow.counted(change.at + BASE.latency).delivered
        assert arrived == pytest.approx(trace.crossed(change.at), abs=1.01), change.at
        flow.reshape(change.at, change.profile, BACK)


def test_the_model_loses_as_asked_while_the_rate_changes() -> None:
    base = BASE.merged(loss=0.05)
    flow = Flow(base, BACK, seed=1)
    flow.send(0.0, 4_000_000)
    before = flow.counted(0.0)
    for step in range(1, 300):
        counted = flow.counted(step / 10)
        assert all(getattr(counted, name) >= getattr(before, name) for name in asdict(counted))
        before = counted
        flow.reshape(step / 10, base.merged(rate=1e6 + 1e5 * (step % 7)), BACK)
    low, high = binomial_range(before.offered, 0.05)
    assert low <= before.lost <= high
