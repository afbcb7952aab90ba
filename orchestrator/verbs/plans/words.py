"""The shared media and the population of a plan in words, for `plan`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from netem.media.profile import ChannelProfile
from netem.units import format_duration, format_fraction, format_rate
from orchestrator import text
from orchestrator.planning.plan import CrossTrafficPlan, LinkPlan, MediumPlan
from orchestrator.population.population import HardwareShare, LinkShare, Population

T = TypeVar("T")

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
        if homes:
            home = [homes.get(medium.name, "")]
        else:
            home = []
        listed = text.some((f"{member} {format_rate(rate)}" for member, rate in first.rates.items()), limit=6)
        members += f" ({listed})" if listed else ""
        yield [medium.name, first.share, _rate(channels), ", ".join(buffers), *home, members]


def cross_traffic_rows(cross_traffic: Sequence[CrossTrafficPlan]) -> Iterator[list[str]]:
    for each in cross_traffic:
        if each.duration is None:
            until = "the run ends"
        else:
            until = format_duration(round(each.at + each.duration, 9))
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


def _traffic(plan: CrossTrafficPlan) -> str:
    traffic = plan.traffic
    if plan.file:
        return f"by {plan.file['csv']}, {format_rate(round(traffic.mean_rate(traffic.rows[-1][0] or 1.0)))} on average"
    rate = f"{traffic.kind}, {format_rate(traffic.rate)}"
    if traffic.kind != "on-off":
        return rate
    return f"{rate} for {format_duration(traffic.on)} and none for {format_duration(traffic.off)}, on average"


def population_entries(population: Population) -> Iterator[tuple[str, str]]:
    """Labels with their texts."""
    facts = population.to_json()
    params = ", ".join(f"{key} {value}" for key, value in facts["selection"]["params"].items() if value is not None)
    how = facts["selection"]["name"] + (f" ({params})" if params else "")
    requested = f" of {population.asked} that are selected" if population.asked > population.selected else ""
    when = "at a time" if population.asynchronous else "in each round"
    yield "selected", f"{population.selected}{requested}, {when}: {how}"
    kind, settings = next(iter(facts["availability"].items()))
    yield "there", f"by the trace {settings}" if kind == "trace" else kind
    if population.speed is None:
        yield "hardware", _shares(population.hardware)
    yield "links", _shares(population.links)
    for what, quantiles in facts["quantiles"].items():
        yield what, ", ".join(f"{part} {value:g}" for part, value in quantiles.items()) + " (quantiles)"


def _shares(shares: Sequence[HardwareShare | LinkShare]) -> str:
    total: defaultdict[str, float] = defaultdict(float)
    for each in shares:
        total[each.name] += each.share
    return ", ".join(f"{name} {format_fraction(round(share, 6))}" for name, share in total.items())


def alike(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Groups of items with equal keys, in the order of their first items."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())
