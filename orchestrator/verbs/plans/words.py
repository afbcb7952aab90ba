"""The shared media and the population of a plan in words, for `plan`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from netem.media.profile import ChannelProfile
from netem.units import format_duration, format_fraction, format_rate
from node.assignment import Tier
from orchestrator import text
from orchestrator.planning.plan import CrossTrafficPlan, LinkPlan, MediumPlan, Plan
from orchestrator.population.population import HardwareShare, LinkShare, Population

T = TypeVar("T")

CROSS_TRAFFIC = ("on", "when", "traffic")


def media_rows(
    media: Sequence[MediumPlan],
    homes: Mapping[str, str],
) -> Iterator[list[str]]:
    """The headings, and a row of each medium. ``homes``: the hosts with their queues, if nodes are on several hosts."""
    headings = ["medium", "share", "rate", "buffer"]
    if homes:
        headings.append("host")
    headings.append("members")
    yield headings
    for medium in media:
        channels = list(medium.channels.values())
        buffers = dict.fromkeys(text.duration(channel.buffer) for channel in channels)
        row = [
            medium.name,
            channels[0].share,
            _rate(channels),
            ", ".join(buffers),
        ]
        if homes:
            row.append(homes.get(medium.name, ""))
        row.append(_members(medium))
        yield row


def _members(medium: MediumPlan) -> str:
    """How many members a medium has, their names and their own rates."""
    members = "none at first"
    if medium.members:
        number = str(len(medium.members))
        if any("*" in member for member in medium.members):
            number = "clients"
        members = f"{number}: {text.some(medium.members, limit=6)}"
    first_channel = next(iter(medium.channels.values()))
    rates = []
    for member, rate in first_channel.rates.items():
        rates.append(f"{member} {format_rate(rate)}")
    if rates:
        members += f" ({text.some(rates, limit=6)})"
    return members


def cross_traffic_rows(cross_traffic: Sequence[CrossTrafficPlan]) -> Iterator[list[str]]:
    for plan in cross_traffic:
        if plan.duration is None:
            until = "the run ends"
        else:
            end = round(plan.at + plan.duration, 9)
            until = format_duration(end)
        when = f"from {format_duration(plan.at)} until {until}"
        yield [plan.channel, when, _traffic(plan)]


def way(link: LinkPlan) -> str:
    """The channels that a link crosses, in order."""
    return ", ".join(crossing.channel for crossing in link.crossings)


def tiers_of(plan: Plan) -> dict[str, Tier]:
    """The tier of each node, by the node's name."""
    return {node.name: node.tier for node in plan.nodes}


def changed_words(values: Mapping[str, Any]) -> dict[str, str]:
    """The values that a fault gives a channel, with units."""
    words = {}
    for key, value in values.items():
        if key == "rate":
            words[key] = format_rate(value)
        elif key == "buffer":
            words[key] = format_duration(value)
    return words


def settings_words(settings: Mapping[str, Any]) -> str:
    """The settings that have a value, such as "lr 0.1, momentum 0.9"."""
    words = []
    for name, value in settings.items():
        if value is not None:
            words.append(f"{name} {value}")
    return ", ".join(words)


def _rate(channels: Sequence[ChannelProfile]) -> str:
    rates = [format_rate(channel.rate) for channel in channels]
    if len(rates) == 1:
        return f"{rates[0]}, half duplex"
    if rates[0] == rates[1]:
        return f"{rates[0]} each way"
    return f"up {rates[0]}, down {rates[1]}"


def _traffic(plan: CrossTrafficPlan) -> str:
    traffic = plan.traffic
    if plan.file:
        last_time, _ = traffic.rows[-1]
        mean_rate = traffic.mean_rate(last_time or 1.0)
        return f"by {plan.file['csv']}, {format_rate(round(mean_rate))} on average"
    rate = f"{traffic.kind}, {format_rate(traffic.rate)}"
    if traffic.kind != "on-off":
        return rate
    on = format_duration(traffic.on)
    off = format_duration(traffic.off)
    return f"{rate} for {on} and none for {off}, on average"


def population_entries(population: Population) -> Iterator[tuple[str, str]]:
    """Labels with their texts."""
    facts = population.to_json()
    yield "selected", _selection(population, facts["selection"])
    kind, settings = next(iter(facts["availability"].items()))
    if kind == "trace":
        yield "there", f"by the trace {settings}"
    else:
        yield "there", kind
    if population.speed is None:
        yield "hardware", _shares(population.hardware)
    yield "links", _shares(population.links)
    for what, quantiles in facts["quantiles"].items():
        values = [f"{part} {value:g}" for part, value in quantiles.items()]
        yield what, f"{', '.join(values)} (quantiles)"


def _selection(population: Population, selection: Mapping[str, Any]) -> str:
    """How many clients are selected, when and how. ``selection``: as in the JSON of the population."""
    clients = str(population.selected)
    if population.asked > population.selected:
        clients += f" of {population.asked} that are selected"
    when = "at a time" if population.asynchronous else "in each round"
    how = selection["name"]
    params = settings_words(selection["params"])
    if params:
        how += f" ({params})"
    return f"{clients}, {when}: {how}"


def _shares(shares: Sequence[HardwareShare | LinkShare]) -> str:
    totals: defaultdict[str, float] = defaultdict(float)
    for part in shares:
        totals[part.name] += part.share
    words = []
    for name, total in totals.items():
        rounded = round(total, 6)
        words.append(f"{name} {format_fraction(rounded)}")
    return ", ".join(words)


def alike(
    items: Iterable[T],
    key: Callable[[T], Hashable],
) -> list[list[T]]:
    """Groups of items with equal keys, in the order of their first items."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        group = groups.setdefault(key(item), [])
        group.append(item)
    return list(groups.values())
