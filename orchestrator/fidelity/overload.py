"""Detect overload of the link engine and its host from their counters. Pure; the monitor reads and records.

Effects of overload on a run: packets leave late, or are lost beyond the configured losses. Causes of overload: the
switch has too many packets to move, the host's processors have too much work, or something stopped the switch for a
moment. Two readings show both for the time between them.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from orchestrator import text
from orchestrator.fabric.base import Counted
from orchestrator.host.kernel.load import HostLoad
from orchestrator.record.events.overload import (
    FULL_BACKLOG,
    FULL_HOST,
    LATE_PACKETS,
    LOST_PACKETS,
    SATURATED,
    SHORTEST,
    Overload,
)

FULL_SWITCH = 0.9  # of a processor; the switch has one thread
WAITING = 0.5  # of the time, during which some task waits for a processor while all are busy
LONGEST = 5.0  # s after which an ongoing overload is recorded, so that it is not lost with the run


class LoadReading(NamedTuple):
    """The counters of the engine and the host at ``t`` seconds since the run started."""

    t: float
    counted: Counted
    host: HostLoad


def overload(before: LoadReading, now: LoadReading) -> Overload | None:
    """The overload between two readings; None if there was none."""
    seconds = now.t - before.t
    if seconds <= 0:
        return None
    processors, waiting = _host_shares(before.host, now.host, seconds)
    saturated = _saturated(processors, waiting)
    cpu_seconds = now.counted.cpu_seconds - before.counted.cpu_seconds
    switch = text.share(cpu_seconds, max(seconds, SHORTEST))
    late = now.counted.late
    lost = Counter(now.counted.drops) - Counter(before.counted.drops)
    backlog = max(0, now.host.dropped - before.host.dropped)  # a processor that is switched off takes its count away
    effects = []
    if late:
        effects.append(LATE_PACKETS)
    if lost:
        effects.append(LOST_PACKETS)
    if backlog:
        effects.append(FULL_BACKLOG)
    if not effects:
        if not saturated:
            return None
        effects.append(SATURATED)
    ours = bool(late or lost)
    late_max = now.counted.late_max if late else 0.0
    lost_everywhere = lost + Counter({FULL_BACKLOG: backlog})
    return Overload(
        before.t,
        now.t,
        tuple(effects),
        _cause(switch, saturated=saturated, ours=ours),
        late=late,
        late_max=late_max,
        held_up=min(late_max, seconds),
        lost=dict(lost_everywhere),
        processors=processors,
        switch=switch,
        waiting=waiting,
    )


def was_saturated(before: HostLoad, now: HostLoad, seconds: float) -> bool:
    """Whether the host had too much work in the ``seconds`` between two readings."""
    processors, waiting = _host_shares(before, now, seconds)
    return _saturated(processors, waiting)


def busy_share(before: HostLoad, now: HostLoad, seconds: float) -> float:
    """The share of the processors' time that was used in the ``seconds`` between two readings."""
    processors, _ = _host_shares(before, now, seconds)
    return processors


def _host_shares(before: HostLoad, now: HostLoad, seconds: float) -> tuple[float, float | None]:
    """``processors`` and ``waiting``, see `Overload`; not known of less than `SHORTEST`."""
    if seconds < SHORTEST:
        return 0.0, None
    busy = max(0.0, now.busy - before.busy)
    idle = max(0.0, now.idle - before.idle)  # the kernel's count of idle time may fall: proc_stat(5), iowait
    processors = text.share(busy, busy + idle)
    if before.waiting is None or now.waiting is None:
        return processors, None
    return processors, text.share(now.waiting - before.waiting, seconds)


def _saturated(processors: float, waiting: float | None) -> bool:
    if processors < FULL_HOST:
        return False
    return waiting is None or waiting >= WAITING


def _cause(switch: float, *, saturated: bool, ours: bool) -> str:
    if switch >= FULL_SWITCH:
        return "more packets than the switch can move"
    if saturated:
        return "this host's processors are saturated"
    if ours:
        return "the switch was held up"
    return "a burst beyond net.core.netdev_max_backlog"


class Overloads:
    """Turns readings into intervals of overload, returned at their ends or after ``LONGEST``. ``known``: all so far."""

    def __init__(self) -> None:
        self.known: list[Overload] = []
        self._before: LoadReading | None = None
        self._open: Overload | None = None

    def add(self, now: LoadReading) -> list[Overload]:
        """The intervals to record after this reading. The first reading is only the baseline."""
        before = self._before
        self._before = now
        latest = None
        if before is not None:
            latest = overload(before, now)
        over: list[Overload] = []
        if self._open is not None and (latest is None or not self._open.followed_by(latest)):
            over += self.end()
        if self._open is not None and latest is not None:
            self._open = self._open.joined(latest)
            self.known[-1] = self._open
        else:
            self._open = latest
            if latest is not None:
                self.known.append(latest)
        if self._open is not None and self._open.end - self._open.start >= LONGEST:
            over += self.end()
        return over

    def end(self) -> list[Overload]:
        """End the ongoing interval and return it for the record."""
        ended = self._open
        self._open = None
        if ended is None:
            return []
        return [ended]
