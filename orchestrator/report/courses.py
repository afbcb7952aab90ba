"""Links over time in the report: the changes that a schedule asked for, and when they were made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import islice
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
from orchestrator.report.marks import Figure, Mark, axis, figure, line, points
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
    """A figure for each course, by its id on the page; empty before training has started."""
    if history.training_began is None:
        return {}
    seconds = history.training_ended - history.training_began
    drawn: dict[str, Figure] = {}
    for course in courses(_links(history), _media(history)):
        figure = course_figure(history, course, seconds)
        if figure:
            drawn[f"course-{len(drawn)}"] = figure
        if len(drawn) == MOST:
            break
    return drawn


def course_figure(history: History, course: Course, seconds: float) -> Figure | None:
    """The configured values as steps, with a mark at the actual time of each recorded change; None if nothing changes.
    The figure shows the first of rate, latency, loss and jitter that changes. Cuts and unlimited rates are gaps."""
    base = course.link.profile
    changes = islice(_until(course.schedule, base, seconds), LONGEST)
    requested = [Change(0.0, base), *changes]
    label, value = _changing_quantity(requested)
    if len({(value(change.profile), change.cut) for change in requested}) == 1:
        return None
    times = []
    values = []
    for change in requested:
        times.append(change.at)
        values.append(None if change.cut else value(change.profile))
    at = dict(zip(times, values, strict=True))
    times.append(max(seconds, times[-1]))
    values.append(values[-1])
    x = axis("seconds of training", range=(0.0, max(seconds, 1e-3)))
    y = axis(label, zero=True)
    marks = [
        line(f"configured for {course.name}", times, values, GLOBAL, steps=True),
        _made(history, course, at),
    ]
    return figure(f"{course.name}: {label}", x, y, marks, 150)


def _changing_quantity(changes: Sequence[Change]) -> Quantity:
    """The first quantity that changes, or the last one if none does."""
    for quantity in _QUANTITIES:
        _, value = quantity
        if len({value(change.profile) for change in changes}) > 1:
            return quantity
    return _QUANTITIES[-1]


def _made(history: History, course: Course, at: Mapping[float, float | None]) -> Mark:
    """The recorded changes at their actual times, at the heights that were configured for their scheduled times."""
    x = []
    y = []
    notes = []
    for recorded in history.recorded(ScheduleStep):
        step = recorded.event
        if step.links != course.name or step.at not in at:
            continue
        x.append(round(float(step.at + step.late), 4))
        y.append(at[step.at])
        notes.append(f"{step.became}, {text.duration(step.late)} late")
    return points("made", x, y, SERIES[0], size=5, notes=notes)


def _until(schedule: Schedule, base: LinkProfile, seconds: float) -> list[Change]:
    """The changes during training, without those that change nothing."""
    kept = []
    current = Change(0.0, base)
    for change in islice(schedule.changes(base), 20 * LONGEST):
        if change.at > seconds:
            break
        if (change.profile, change.cut) != (current.profile, current.cut):
            kept.append(change)
            current = change
    return kept


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
        schedules = {}
        try:
            for name, mapping in medium.get("schedules", {}).items():
                schedule = read_schedule(mapping, history.directory)
                if schedule is not None:
                    schedules[name] = schedule
        except NetemError:
            continue  # written by another version
        channels = {}
        for name, mapping in medium["channels"].items():
            channels[name] = ChannelProfile.from_mapping(mapping)
        yield RecordedMedium(medium["name"], channels, schedules)


def read_schedule(mapping: Mapping[str, Any], directory: Path) -> Schedule | None:
    """The schedule that plan.json describes; None if its file was not kept in the run's directory."""
    if "trace" in mapping:
        name = mapping["trace"]
        kept = find_file(directory, name, mapping["sha256"])
        if kept is None:
            return None
        window = parse_duration(mapping["window"])
        return Trace.read(kept, name, window)
    if "csv" in mapping:
        name = mapping["csv"]
        kept = find_file(directory, name, mapping["sha256"])
        if kept is None:
            return None
        repeat = parse_duration(mapping["repeat"]) if "repeat" in mapping else None
        known = [field.name for field in fields(TableForm)]
        settings = {field: mapping[field] for field in known if field in mapping}
        form = TableForm(**settings)
        return TraceTable.read(kept, name, repeat, form)
    return Steps.from_mapping(mapping)
