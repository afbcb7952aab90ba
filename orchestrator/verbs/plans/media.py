"""The shared media of a plan in words, for `plan`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from netem.media.profile import ChannelProfile
from netem.units import format_duration, format_rate
from orchestrator import text
from orchestrator.planning.plan import CrossTrafficPlan, LinkPlan, MediumPlan

CROSS_TRAFFIC = ("on", "when", "traffic")


def media_rows(media: Sequence[MediumPlan], homes: Mapping[str, str]) -> Iterator[list[str]]:
    """The headings, and a row of each medium. ``homes``: the hosts with their queues, if nodes are on several hosts."""
    yield ["medium", "share", "rate", "buffer", *(["host"] if homes else []), "members"]
    for medium in media:
        channels = list(medium.channels.values())
        first = channels[0]
        buffers = dict.fromkeys(text.duration(each.buffer) for each in channels)
        number = "clients" if any("*" in member for member in medium.members) else len(medium.members)
        members = f"{number}: {text.some(medium.members, limit=6)}" if medium.members else "none at first"
        home = [homes.get(medium.name, "")] if homes else []
        yield [medium.name, first.share, _rate(channels), ", ".join(buffers), *home, members + _own_rates(first)]


def cross_traffic_rows(cross_traffic: Sequence[CrossTrafficPlan]) -> Iterator[list[str]]:
    """A row of each entry."""
    for each in cross_traffic:
        until = "the run ends" if each.duration is None else format_duration(round(each.at + each.duration, 9))
        yield [each.channel, f"from {format_duration(each.at)} until {until}", _traffic(each)]


def way(link: LinkPlan) -> str:
    """The channels that a link crosses, in order."""
    return ", ".join(each.channel for each in link.crossings)


def changed_words(values: Mapping[str, Any]) -> dict[str, str]:
    """The values that a fault gives a channel, with units."""
    units = {"rate": format_rate, "buffer": format_duration}
    return {key: units[key](value) for key, value in values.items() if key in units}


def _rate(channels: Sequence[ChannelProfile]) -> str:
    rates = [format_rate(each.rate) for each in channels]
    if len(rates) == 1:
        return f"{rates[0]}, half duplex"
    return f"{rates[0]} each way" if rates[0] == rates[1] else f"up {rates[0]}, down {rates[1]}"


def _own_rates(channel: ChannelProfile) -> str:
    listed = [f"{member} {format_rate(rate)}" for member, rate in channel.rates.items()]
    return f" ({text.some(listed, limit=6)})" if listed else ""


def _traffic(plan: CrossTrafficPlan) -> str:
    traffic = plan.traffic
    if plan.file:
        return f"by {plan.file['csv']}, {format_rate(round(traffic.mean_rate(traffic.rows[-1][0] or 1.0)))} on average"
    rate = f"{traffic.kind}, {format_rate(traffic.rate)}"
    if traffic.kind != "on-off":
        return rate
    return f"{rate} for {format_duration(traffic.on)} and none for {format_duration(traffic.off)}, on average"
