"""Shared media in the report and on the live page: what their channels carried, and how busy they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, groupby

from orchestrator import text
from orchestrator.report.figures import cycled
from orchestrator.report.marks import Figure, axis, figure, line
from orchestrator.results.facts import Facts
from orchestrator.results.history import History
from orchestrator.results.story import Story
from orchestrator.results.traffic.media import (
    ChannelReading,
    channel_counters,
    profiles,
    readings,
    sampled,
    utilisation,
)

MEMBERS = 6  # in a row of the table: those with the most bytes


def media_rows(history: History) -> list[dict[str, str]]:
    """A row for each channel, in words: its rule and rate, its utilisation, queue, losses and shares in training."""
    counted = {name: list(of) for name, of in groupby(channel_counters(history), key=lambda row: row.channel)}
    training = history.training_ended - (history.training_began or 0.0)
    read = readings(history)
    rows = []
    steps = _steps(history, read)
    for name, channel in profiles(history).items():
        members = counted.get(name, [])
        of = read.get(name, [])
        carried = sum(row.bytes for row in members)
        dropped = sum(row.overflowed for row in members)
        longest = max((8 * each.queued_bytes for each in of), default=0) / channel.rate
        rows.append(
            {
                "channel": name,
                "rule": channel.share,
                "rate": text.rate(channel.rate),
                "carried": text.size(carried),
                "mean": text.percent(text.share(sum(row.seconds for row in members), training)),
                "most": text.percent(max((value for _, value in steps.get(name, ())), default=0.0)),
                "queue": "full" if dropped else text.duration(longest),  # a reading may miss the longest
                "dropped": text.number(dropped),
                "shares": text.some(
                    (f"{row.member} {text.percent(row.bytes / max(1, carried))}" for row in members), MEMBERS
                ),
            }
        )
    return rows


def media_figure(history: History) -> Figure:
    """The utilisation of each channel over the training; without marks if no channel carried anything."""
    return _figure(history, _steps(history, readings(history)))


def media_so_far(story: Story) -> Figure | None:
    """The same of a running run; None if it has no shared media."""
    if not story.plan.get("media"):
        return None
    occupied = story.usage.occupied
    began = story.training_began or 0.0
    times = sorted({*chain(*story.usage.delivered.values(), *occupied.values())})
    return _figure(story, {name: list(utilisation(of, times, began)) for name, of in occupied.items()})


def _steps(history: History, read: Mapping[str, Sequence[ChannelReading]]) -> dict[str, list[tuple[float, float]]]:
    times = sampled(history)
    began = history.training_began or 0.0
    occupied = {name: {each.t: each.occupied for each in of} for name, of in read.items()}
    return {name: list(utilisation(of, times, began)) for name, of in occupied.items()}


def _figure(history: Facts, steps: Mapping[str, Sequence[tuple[float, float]]]) -> Figure:
    began = history.training_began or 0.0
    marks = []
    planned = [name for name in profiles(history) if name in steps]  # in this order in each report
    for name, colour in zip(planned, cycled(len(planned)), strict=True):
        times, values = zip(*steps[name], strict=True)
        marks.append(line(name, [round(t - began, 3) for t in times], values, colour, steps=True))
    x = axis("seconds of training", zero=True)
    y = axis("utilisation", format="percent", range=(0.0, 1.05))
    return figure("Utilisation of shared media", x, y, marks, 150, hover="x")
