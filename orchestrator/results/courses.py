"""Courses: groups of links that follow one schedule together, and the changes that the schedule makes to them.

A channel of a shared medium that follows a schedule is a course of its own, as a link with its rate and its buffer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from netem.schedules.schedule import Change, Schedule
from netem.userspace.lateness import Lateness
from orchestrator.planning.plan import LinkPlan, MediumPlan
from orchestrator.scenario.media.section import link_like
from orchestrator.scenario.sections.topology import Ends

SHARED = "shared"  # takes the place of the class of a link
LOOKED_AT = 10_000  # changes of a schedule in which its first effect is looked for


@dataclass
class Course:
    """Links that follow one schedule together, with counts of the changes.

    ``changes``: changes made, each on all links. ``overtaken``: changes skipped because the next one was due.
    ``failures``: how often a change could not be made on a link.
    """

    name: str
    pairs: tuple[Ends, ...]
    schedule: Schedule
    link: LinkPlan  # the first link of the course
    channel: str | None = None  # the channel that follows the schedule; then ``link`` only has its rate and buffer
    changes: int = 0
    overtaken: int = 0
    failures: int = 0
    lateness: Lateness = field(default_factory=Lateness)

    @property
    def first(self) -> float | None:
        """When the schedule first changes the link, in seconds; None if it never does."""
        planned = islice(self.schedule.changes(self.link.profile), LOOKED_AT)
        return next((each.at for each in planned if each.cut or each.profile != self.link.profile), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "links": self.name,
            "count": len(self.pairs),
            "schedule": self.schedule.describe(),
            "changes": self.changes,
            "first": self.first,
            "overtaken": self.overtaken,
            "failures": self.failures,
            "late_p99": self.lateness.quantile(0.99),
            "late_max": self.lateness.maximum,
        }


def courses(links: Sequence[LinkPlan], media: Iterable[MediumPlan] = ()) -> list[Course]:
    """Group the links that have a schedule by class, schedule and initial profile. Channels that have one follow."""
    groups: dict[tuple[Any, ...], list[LinkPlan]] = {}
    for link in links:
        if link.schedule is not None:
            written = json.dumps(link.schedule.to_mapping())
            groups.setdefault((link.link_class, written, link.profile), []).append(link)
    found = [
        Course(_name(group), tuple((link.source, link.target) for link in group), group[0].schedule, group[0])
        for group in groups.values()
        if group[0].schedule is not None
    ]
    for medium in media:
        for name, schedule in medium.schedules.items():
            link = LinkPlan(medium.name, name, SHARED, link_like(medium.channels[name]), 0, schedule)
            found.append(Course(name, ((medium.name, name),), schedule, link, name))
    return found


def changes_since(elapsed: float, changes: Iterator[Change]) -> Iterator[Change]:
    """The changes of a schedule from ``elapsed`` on. The first one is the change in force then, with that time."""
    held: Change | None = None
    for change in changes:
        if change.at <= elapsed:
            held = replace(change, at=elapsed)
            continue
        if held is not None:
            yield held
            held = None
        yield change
    if held is not None:
        yield held


def _name(links: Sequence[LinkPlan]) -> str:
    """``edge-0 → cloud``; for several links, class, first link and number: ``device-edge: a → b and 11 more``."""
    first = f"{links[0].source} → {links[0].target}"
    return first if len(links) == 1 else f"{links[0].link_class}: {first} and {len(links) - 1} more"
