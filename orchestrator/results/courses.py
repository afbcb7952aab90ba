"""Courses: groups of links that follow one schedule together, and the changes that the schedule makes to them.

A channel of a shared medium that follows a schedule is a course of its own, as a link with its rate and its buffer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple, Protocol

from netem.media.conversion import link_like
from netem.media.profile import ChannelProfile
from netem.profile import LinkProfile
from netem.schedules.schedule import Change, Schedule
from netem.userspace.lateness import Lateness
from orchestrator.record.events.links import ScheduleEnded
from orchestrator.record.rows import Ends

SHARED = "shared"  # takes the place of the class of a link
LOOKED_AT = 10_000  # changes of a schedule in which its first effect is looked for


class ScheduledLink(Protocol):
    """One direction of a link, as a plan has it."""

    @property
    def source(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def link_class(self) -> str: ...

    @property
    def profile(self) -> LinkProfile: ...

    @property
    def schedule(self) -> Schedule | None: ...


class ScheduledMedium(Protocol):
    """A shared medium, as a plan has it."""

    @property
    def name(self) -> str: ...

    @property
    def channels(self) -> Mapping[str, ChannelProfile]: ...

    @property
    def schedules(self) -> Mapping[str, Schedule]: ...


class RecordedLink(NamedTuple):
    """A link with a schedule, as far as the changes of its schedule need it."""

    source: str
    target: str
    link_class: str
    profile: LinkProfile
    schedule: Schedule | None


class RecordedMedium(NamedTuple):
    """A shared medium, as far as the changes of the schedules of its channels need it."""

    name: str
    channels: Mapping[str, ChannelProfile]
    schedules: Mapping[str, Schedule]


@dataclass
class Course:
    """Links that follow one schedule together, with counts of the changes.

    ``changes``: changes made, each on all links. ``overtaken``: changes skipped because the next one was due.
    ``failures``: how often a change could not be made on a link.
    """

    name: str
    pairs: tuple[Ends, ...]
    schedule: Schedule
    link: ScheduledLink  # the first link of the course
    channel: str | None = None  # the channel that follows the schedule; then ``link`` only has its rate and buffer
    changes: int = 0
    overtaken: int = 0
    failures: int = 0
    lateness: Lateness = field(default_factory=Lateness)

    @property
    def first(self) -> float | None:
        """When the schedule first changes the link, in seconds; None if it never does."""
        initial = self.link.profile
        for change in islice(self.schedule.changes(initial), LOOKED_AT):
            if change.cut or change.profile != initial:
                return change.at
        return None

    def ended(self) -> ScheduleEnded:
        """The event of its end, for the record."""
        return ScheduleEnded(
            links=self.name,
            count=len(self.pairs),
            schedule=self.schedule.describe(),
            changes=self.changes,
            first=self.first,
            overtaken=self.overtaken,
            failures=self.failures,
            late_p99=self.lateness.quantile(0.99),
            late_max=self.lateness.maximum,
        )


def courses(links: Sequence[ScheduledLink], media: Iterable[ScheduledMedium] = ()) -> list[Course]:
    """Group the links that have a schedule by class, schedule and initial profile. Channels that have one follow."""
    groups: dict[tuple[Any, ...], list[ScheduledLink]] = {}
    for link in links:
        if link.schedule is not None:
            written = json.dumps(link.schedule.to_mapping())
            alike = (link.link_class, written, link.profile)
            groups.setdefault(alike, []).append(link)
    grouped = []
    for group in groups.values():
        first = group[0]
        if first.schedule is not None:
            pairs = tuple((link.source, link.target) for link in group)
            grouped.append(Course(_name(group), pairs, first.schedule, first))
    for medium in media:
        for channel, schedule in medium.schedules.items():
            profile = link_like(medium.channels[channel])
            link = RecordedLink(medium.name, channel, SHARED, profile, schedule)
            ends = (medium.name, channel)
            grouped.append(Course(channel, (ends,), schedule, link, channel))
    return grouped


def changes_since(elapsed: float, changes: Iterator[Change]) -> Iterator[Change]:
    """The changes of a schedule from ``elapsed`` on. The first one is the change in force then, with that time."""
    in_force: Change | None = None
    for change in changes:
        if change.at <= elapsed:
            in_force = replace(change, at=elapsed)
            continue
        if in_force is not None:
            yield in_force
            in_force = None
        yield change
    if in_force is not None:
        yield in_force


def _name(links: Sequence[ScheduledLink]) -> str:
    """``edge-0 → cloud``; for several links, class, first link and number: ``device-edge: a → b and 11 more``."""
    first = links[0]
    ends = f"{first.source} → {first.target}"
    if len(links) == 1:
        return ends
    return f"{first.link_class}: {ends} and {len(links) - 1} more"
