"""Events of links while a run trains: their schedules, their losses, cross traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.record.events.base import RecordedEvent


@dataclass(frozen=True)
class Probed(RecordedEvent):
    """The bytes that the links of each class delivered before training started, to probes."""

    NAME = "probed"

    bytes: Mapping[str, int]


@dataclass(frozen=True)
class ScheduleStep(RecordedEvent):
    """A change of a schedule was made. ``at``: its time in seconds of training. ``late``: how much later it was made on
    the last of its links. ``became``: the new values, in words."""

    NAME = "schedule"

    links: str
    at: float
    late: float
    became: str


@dataclass(frozen=True)
class ScheduleFailed(RecordedEvent):
    """A change of a schedule could not be made on a link."""

    NAME = "schedule failed"

    link: str
    at: float | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class ScheduleEnded(RecordedEvent):
    """The changes of a schedule when the run ended.

    ``links``: their name, and ``count``: their number. ``schedule``: in words. ``changes``: the changes that were made.
    ``first``: when the schedule first changes anything, in seconds of training; None: never. ``overtaken``: changes
    that were skipped because the next one was due. ``failures``: how often a change could not be made on a link.
    ``late_p99``, ``late_max``: their lateness in seconds.
    """

    NAME = "schedule ended"

    links: str
    count: int = 0
    schedule: str = ""
    changes: int
    first: float | None = None
    overtaken: int
    failures: int
    late_p99: float
    late_max: float


@dataclass(frozen=True)
class CrossTraffic(RecordedEvent):
    """Cross traffic on a channel starts or ends (``phase``). ``rate``: its mean in bit/s."""

    NAME = "cross traffic"

    channel: str
    phase: str
    kind: str
    rate: float


@dataclass(frozen=True)
class LossAudit(RecordedEvent):
    """The losses of all links from the start of training until now, compared with their profiles.

    links, packets   number of directions used, and of their packets
    told             number of those directions with enough packets for a verdict
    astray_count     number of links with losses that differ from the configured ones
    astray           the first of these, each with its ``link`` and figures
    classes          the same figures for each class of links, with the sums over its links
    overflowed       packets that found no room in a buffer, over all links and channels
    most_overflowed  the ``link`` or channel with most of these ``packets``; None without any
    cut_dropped      packets that met a link that was cut, over all links
    nat_expired      packets that NATs dropped, because their flow had been idle for too long
    most_nat_expired the ``link`` with most of these ``packets``; None without any
    too_large        packets larger than their link's `drop_above`, over all links
    most_too_large   the ``link`` with most of these ``packets``; None without any
    """

    NAME = "links looked at"

    links: int
    packets: int
    told: int
    astray_count: int
    astray: Sequence[Mapping[str, Any]]
    classes: Sequence[Mapping[str, Any]]
    overflowed: int = 0
    most_overflowed: Mapping[str, Any] | None = None
    cut_dropped: int = 0
    nat_expired: int = 0
    most_nat_expired: Mapping[str, Any] | None = None
    too_large: int = 0
    most_too_large: Mapping[str, Any] | None = None
