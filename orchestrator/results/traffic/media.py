"""What the channels of shared media carried in training, from the record."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from netem.media.profile import ChannelProfile
from netem.profile import FULL_FRAME
from orchestrator.record.schema import CHANNEL_COUNTS
from orchestrator.results.facts import Facts
from orchestrator.results.history import History
from orchestrator.results.traffic.windows import Window


class ChannelCounters(NamedTuple):
    """The totals of a member of a channel; ``seconds``: how long its packets occupied the channel."""

    channel: str
    member: str
    packets: int
    bytes: int
    seconds: float
    overflowed: int


class ChannelReading(NamedTuple):
    """What was added to a channel until ``t``: the seconds that it was occupied, and those that its bytes need at the
    rates of their members. ``queued_bytes``: waiting at ``t``."""

    t: float
    occupied: float
    needed: float
    queued_bytes: int


def profiles(history: Facts) -> dict[str, ChannelProfile]:
    """The planned channels by name."""
    planned = {}
    for medium in history.plan.get("media", ()):
        for name, profile in medium["channels"].items():
            planned[name] = ChannelProfile.from_mapping(profile)
    return planned


def channel_counters(history: History) -> list[ChannelCounters]:
    """Totals of each member of each channel, those with the most bytes first."""
    sums = ", ".join(f"SUM({count})" for count in CHANNEL_COUNTS)
    order = "GROUP BY channel, member ORDER BY channel, SUM(bytes) DESC, member"
    rows = history.rows(f"SELECT channel, member, {sums} FROM channel {order}")
    return [ChannelCounters(*row) for row in rows]


def readings(history: History) -> dict[str, list[ChannelReading]]:
    """The readings of each planned channel."""
    planned = profiles(history)
    by_channel: defaultdict[str, dict[float, ChannelReading]] = defaultdict(dict)
    rows = history.rows("SELECT t, channel, member, bytes, seconds, queued_bytes FROM channel ORDER BY rowid")
    for t, channel, member, size, seconds, queued in rows:
        if channel not in planned:
            continue
        nothing = ChannelReading(t, 0.0, 0.0, 0)
        by_time = by_channel[channel]
        before = by_time.get(t, nothing)
        rate = planned[channel].rate_of(member)
        needed = 8 * size / rate
        by_time[t] = ChannelReading(
            t=t,
            occupied=before.occupied + seconds,
            needed=before.needed + needed,
            queued_bytes=before.queued_bytes + queued,
        )
    channel_readings = {}
    for channel, by_time in by_channel.items():
        channel_readings[channel] = list(by_time.values())
    return channel_readings


def sampled(history: History) -> list[float]:
    """The times of all readings of links and channels, in order."""
    rows = history.rows("SELECT t FROM link_growth UNION SELECT t FROM channel ORDER BY t")
    return [t for (t,) in rows]


def utilisation(
    occupied: Mapping[float, float],
    times: Sequence[float],
    began: float,
) -> Iterator[tuple[float, float]]:
    """The fraction of its time for which a channel was occupied, as steps: each value starts at its time. ``occupied``:
    the seconds by the time of the reading. ``times``: see `sampled`."""
    last = began
    for t, seconds in occupied.items():
        place = bisect_left(times, t) - 1
        if place >= 0:
            since = max(last, times[place])
        else:
            since = last
        if since > last:
            yield last, 0.0  # nothing was carried in the samples between
        if t > since:
            share = seconds / (t - since)
            yield since, min(1.0, share)
        last = t
    yield last, 0.0


def busiest(
    history: History,
    lengths: Sequence[int],
    unsure: float,
) -> dict[str, tuple[float, Window]]:
    """By channel: its rate, and the window of so many readings (``lengths``) in which it carried most per second for
    certain, as if all its members had its own rate. ``unsure``: possible error (s) of a window's length. Without
    channels that a fault or a schedule changed."""
    changed: set[str] = set()
    for span in history.faults():
        changed.update(span.planned.get("channels", ()))
    for medium in history.plan.get("media", ()):
        changed.update(medium.get("schedules", ()))
    planned = profiles(history)
    busiest_windows: dict[str, tuple[float, Window]] = {}
    for name, of_channel in readings(history).items():
        if name in changed:
            continue
        channel = planned[name]
        rates = [channel.rate, *channel.rates.values()]
        slowest = min(rates)
        frame_seconds = 8 * FULL_FRAME / slowest
        extra_bits = channel.rate * frame_seconds
        sums = list(accumulate(reading.needed for reading in of_channel))
        least_so_far = 0.0
        for length in lengths:
            for first in range(len(of_channel) - length):
                last = first + length
                needed = sums[last] - sums[first]
                lasted = of_channel[last].t - of_channel[first].t
                window = Window(channel.rate * needed, lasted, extra_bits, unsure)
                if window.least_rate > least_so_far:
                    least_so_far = window.least_rate
                    busiest_windows[name] = channel.rate, window
    return busiest_windows
