"""Links over time in the report: the changes that a schedule asked for, and when they were made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from netem.errors import NetemError
from netem.media.profile import ChannelProfile
from netem.profile import LinkProfile
from netem.schedules.schedule import Change, Schedule, Steps
from netem.schedules.traces import TableForm, Trace, TraceTable
from netem.units import parse_duration
from orchestrator import text
from orchestrator.record.events.links import ScheduleStep
from orchestrator.record.kept_files import find_file
from orchestrator.report.figures import GLOBAL, SERIES
from orchestrator.report.marks import Figure, axis, figure, line, points
from orchestrator.results.courses import Course, RecordedLink, RecordedMedium, courses
from orchestrator.results.history import History

MOST = 8  # courses that are drawn
LONGEST = 5000  # changes that are drawn per course: the first ones

Quantity = tuple[str, Callable[[LinkProfile], float | None]]
_QUANTITIES: tuple[Quantity, ...] = (
    ("rate, Mbit/s", lambda profile: None if profile.rate is None else profile.rate / 1e6),
    ("latency, ms", lambda profile: 1000 * profile.latency),
    ("loss, %", lambda profile: 100 * profile.mean_loss),
    ("jitter, ms", lambda profile: 1000 * profile.jitter),
)


def course_figures(history: History) -> dict[str, Figure]:
    """A figure for each course, by its id on the page; empty before training has begun."""
    if history.training_began is None:
        return {}
    seconds = history.training_ended - history.training_began
    drawn = (course_figure(history, course, seconds) for course in courses(_links(history), _media(history)))
    return {f"course-{number}": figure for number, figure in enumerate(islice(filter(None, drawn), MOST))}


def course_figure(history: History, course: Course, seconds: float) -> Figure | None:
    """The configured values as steps, with a mark at the actual time of each recorded change; None if nothing changes.
    The figure shows the first of rate, latency, loss and jitter that changes. Cuts and unlimited rates are gaps."""
    base = course.link.profile
    requested = [Change(0.0, base), *islice(_until(course.schedule, base, seconds), LONGEST)]
    for label, value in _QUANTITIES:
        if len({value(change.profile) for change in requested}) > 1 or label == _QUANTITIES[-1][0]:
            break
    if len({(value(change.profile), change.cut) for change in requested}) == 1:
        return None
    times = [change.at for change in requested] + [max(seconds, requested[-1].at)]
    values = [None if change.cut else value(change.profile) for change in requested]
    steps = [recorded.event for recorded in history.recorded(ScheduleStep) if recorded.event.links == course.name]
    at = {change.at: height for change, height in zip(requested, values, strict=True)}
    marks = [(float(step.at + step.late), at[step.at], step) for step in steps if step.at in at]
    requested_line = line(f"configured for {course.name}", times, [*values, values[-1]], GLOBAL, steps=True)
    notes = [f"{step.became}, {text.duration(step.late)} late" for *_, step in marks]
    made_points = points(
        "made", [round(x, 4) for x, _, _ in marks], [y for _, y, _ in marks], SERIES[0], size=5, notes=notes
    )
    x = axis("seconds of training", range=(0.0, max(seconds, 1e-3)))
    y = axis(label, zero=True)
    return figure(f"{course.name}: {label}", x, y, [requested_line, made_points], 150)


def _until(schedule: Schedule, base: LinkProfile, seconds: float) -> list[Change]:
    """The changes during training, without those that change nothing."""
    found = [Change(0.0, base)]
    due = takewhile(lambda change: change.at <= seconds, schedule.changes(base))
    for change in islice(due, 20 * LONGEST):
        if (change.profile, change.cut) != (found[-1].profile, found[-1].cut):
            found.append(change)
    return found[1:]


def _links(history: History) -> list[RecordedLink]:
    """The planned links that have a schedule, if the schedule can still be read."""
    links = []
    for link in history.plan.get("links", []):
        if "schedule" not in link:
            continue
        try:
            schedule = read_schedule(link["schedule"], history.directory)
            profile = LinkProfile.from_mapping(link["profile"])
        except NetemError:
            continue  # written by another version
        if schedule is not None:
            plan = RecordedLink(link["source"], link["target"], link["link_class"], profile, schedule)
            links.append(plan)
    return links


def _media(history: History) -> Iterator[RecordedMedium]:
    """The media of a plan.json with the schedules of their channels."""
    for medium in history.plan.get("media", []):
        try:
            read = {name: read_schedule(each, history.directory) for name, each in medium.get("schedules", {}).items()}
        except NetemError:
            continue  # written by another version
        channels = {name: ChannelProfile.from_mapping(each) for name, each in medium["channels"].items()}
        found = {name: schedule for name, schedule in read.items() if schedule is not None}
        yield RecordedMedium(medium["name"], channels, found)


def read_schedule(mapping: Mapping[str, Any], directory: Path) -> Schedule | None:
    """The schedule that plan.json describes; None if its file was not kept in the run's directory."""
    for key in ("trace", "csv"):
        if key in mapping:
            kept = find_file(directory, mapping[key], mapping["sha256"])
            if kept is None:
                return None
            if key == "trace":
                return Trace.read(kept, mapping[key], parse_duration(mapping["window"]))
            repeat = parse_duration(mapping["repeat"]) if "repeat" in mapping else None
            form = TableForm(**{each.name: mapping[each.name] for each in fields(TableForm) if each.name in mapping})
            return TraceTable.read(kept, mapping[key], repeat, form)
    return Steps.from_mapping(mapping)
