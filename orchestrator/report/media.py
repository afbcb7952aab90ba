"""Shared media in the report and on the live page: what their channels carried, and how busy they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from orchestrator import text
from orchestrator.report.figures import cycled
from orchestrator.report.marks import Figure, axis, figure, line
from orchestrator.results.facts import Facts
from orchestrator.results.history import History
from orchestrator.results.story import Story
from orchestrator.results.traffic.media import (
    ChannelCounters,
    ChannelReading,
    channel_counters,
    profiles,
    readings,
    sampled,
    utilisation,
)

MEMBERS = 6  # in a row of the table: those with the most bytes

Step = tuple[float, float]  # a time and the utilisation from then on


def media_rows(history: History) -> list[dict[str, str]]:
    """A row for each channel, in words: its rule and rate, its utilisation, queue, losses and shares in training."""
    by_channel: dict[str, list[ChannelCounters]] = {}
    for name, counters in groupby(channel_counters(history), key=lambda row: row.channel):
        by_channel[name] = list(counters)
    training = history.training_ended - (history.training_began or 0.0)
    by_name = readings(history)
    steps = _steps(history, by_name)
    rows = []
    for name, channel in profiles(history).items():
        members = by_channel.get(name, [])
        carried = sum(row.bytes for row in members)
        dropped = sum(row.overflowed for row in members)
        busy = sum(row.seconds for row in members)
        most_queued = 0
        for reading in by_name.get(name, []):
            most_queued = max(most_queued, reading.queued_bytes)
        longest = 8 * most_queued / channel.rate
        most = 0.0
        for _, value in steps.get(name, ()):
            most = max(most, value)
        shares = []
        for row in members:
            share = row.bytes / max(1, carried)
            shares.append(f"{row.member} {text.percent(share)}")
        row_of_channel = {
            "channel": name,
            "rule": channel.share,
            "rate": text.rate(channel.rate),
            "carried": text.size(carried),
            "mean": text.percent(text.share(busy, training)),
            "most": text.percent(most),
            "queue": "full" if dropped else text.duration(longest),  # a reading may miss the longest
            "dropped": text.number(dropped),
            "shares": text.some(shares, MEMBERS),
        }
        rows.append(row_of_channel)
    return rows


def media_figure(history: History) -> Figure:
    """The utilisation of each channel over the training; without marks if no channel carried anything."""
    return _figure(history, _steps(history, readings(history)))


def media_so_far(story: Story) -> Figure | None:
    """The same of a running run; None if it has no shared media."""
    if not story.plan.get("media"):
        return None
    began = story.training_began or 0.0
    occupied = story.usage.occupied
    moments: set[float] = set()
    moments.update(*story.usage.delivered.values())
    moments.update(*occupied.values())
    times = sorted(moments)
    steps = {}
    for name, seconds in occupied.items():
        steps[name] = list(utilisation(seconds, times, began))
    return _figure(story, steps)


def _steps(
    history: History,
    by_name: Mapping[str, Sequence[ChannelReading]],
) -> dict[str, list[Step]]:
    times = sampled(history)
    began = history.training_began or 0.0
    steps = {}
    for name, channel_readings in by_name.items():
        occupied = {reading.t: reading.occupied for reading in channel_readings}
        steps[name] = list(utilisation(occupied, times, began))
    return steps


def _figure(history: Facts, steps: Mapping[str, Sequence[Step]]) -> Figure:
    began = history.training_began or 0.0
    marks = []
    planned = [name for name in profiles(history) if name in steps]  # in this order in each report
    for name, colour in zip(planned, cycled(len(planned)), strict=True):
        times = []
        values = []
        for t, value in steps[name]:
            times.append(round(t - began, 3))
            values.append(value)
        marks.append(line(name, times, values, colour, steps=True))
    x = axis("seconds of training", zero=True)
    y = axis("utilisation", format="percent", range=(0.0, 1.05))
    return figure("Utilisation of shared media", x, y, marks, 150, hover="x")
