"""Shared media in a plan: their channels, the traffic of others, what a member gets at worst, and how the kernel engine
has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from netem.kernel.media import queue_limit
from netem.media.formulas import shares
from netem.media.profile import ChannelProfile, CrossTraffic
from netem.profile import LONGEST, LinkProfile
from node.assignment import derive_seed
from orchestrator.planning.faults.timeline import Fault
from orchestrator.planning.plan import CrossTrafficPlan, LinkPlan, MediumPlan, Plan, channels_of
from orchestrator.population.population import Population, client_name
from orchestrator.scenario.media.routes import ResolvedMedia
from orchestrator.scenario.media.section import slowest
from orchestrator.scenario.media.validation import beyond_kernel
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.topology import Ends

_OTHERS = "\0"  # stands for cross traffic among the members of a channel


def plan_media(scenario: Scenario) -> tuple[MediumPlan, ...]:
    media = scenario.resolved_media
    return tuple(
        MediumPlan(name, media.channels[name], media.members[name], spec.schedules(name))
        for name, spec in scenario.shared.items()
    )


def plan_cross_traffic(scenario: Scenario) -> tuple[CrossTrafficPlan, ...]:
    """The cross traffic on each channel. Its seed depends on the channel and on how much there is on it before."""
    found: list[CrossTrafficPlan] = []
    count: defaultdict[str, int] = defaultdict(int)
    for spec in scenario.cross_traffic:
        for channel in scenario.resolved_media.on(spec.on, spec.direction):
            count[channel] += 1
            seed = derive_seed(scenario.seed, "cross traffic", channel, str(count[channel]))
            found.append(CrossTrafficPlan(channel, spec.traffic(), spec.at, spec.for_, seed, spec.file))
    return tuple(found)


def media_of(plan: Plan) -> ResolvedMedia:
    return ResolvedMedia(
        channels={medium.name: dict(medium.channels) for medium in plan.media},
        members={medium.name: medium.members for medium in plan.media},
        crossings={(link.source, link.target): link.crossings for link in plan.links if link.crossings},
    )


def at_worst(
    links: Iterable[LinkPlan],
    media: Sequence[MediumPlan],
    cross_traffic: Iterable[CrossTrafficPlan],
    faults: Iterable[Fault],
) -> dict[Ends, list[LinkProfile]]:
    """The profiles to plan with, by direction: those of the link and its schedule, with at most the share of each
    channel that it has if all members send at the same time, and with the delay of the channels' full queues. A node
    that may be handed over counts as a member of both media. Cross traffic counts with its rate, that of a trace with
    its mean. It has no more than its share as a member, except with ``fifo``."""
    channels = {
        name: slowest(profile, medium.schedules.get(name))
        for medium in media
        for name, profile in medium.channels.items()
    }
    ways = defaultdict(list)
    members: defaultdict[str, set[str]] = defaultdict(set)
    links = list(links)
    moved = [each for fault in faults for each in fault.crossings]
    for source, target, way in [(link.source, link.target, link.crossings) for link in links] + moved:
        ways[source, target].append(way)
        for each in way:
            members[each.channel].add(each.member)
    others: defaultdict[str, float] = defaultdict(float)
    for traffic in cross_traffic:
        others[traffic.channel] = max(others[traffic.channel], _rate(traffic.traffic))
    least = {name: _shares(channels[name], sorted(found), others[name]) for name, found in members.items()}
    delays = {
        name: {member: 8 * channels[name].buffer_bytes / (len(found) * found[member]) for member in found}
        for name, found in least.items()
    }
    return {
        (link.source, link.target): [
            _slowed(
                profile,
                [least[each.channel][each.member] for each in way],
                sum(delays[each.channel][each.member] for each in way),
            )
            for way in dict.fromkeys(ways[link.source, link.target])
            for profile in link.extremes
        ]
        for link in links
    }


def clients_at_worst(
    population: Population, media: Sequence[MediumPlan], cross_traffic: Iterable[CrossTrafficPlan]
) -> tuple[list[LinkProfile], list[LinkProfile]]:
    """The profiles of clients to plan with, up and down: as if all those of a round sent at the same time."""
    ups = [each.up for each in population.links]
    downs = [each.down for each in population.links]
    if not media:
        return ups, downs
    random = np.random.default_rng(derive_seed(population.seed, "media"))
    links = []
    for number, client in enumerate(set(random.integers(population.size, size=population.asked).tolist())):
        name = client_name(client)
        place = number % len(ups)
        there, back = population.crossings(name)
        links.append(LinkPlan(name, "cloud", "", ups[place], 0, crossings=there))
        links.append(LinkPlan("cloud", name, "", downs[place], 0, crossings=back))
    worst = at_worst(links, media, cross_traffic, ())
    sides = [
        {profile: None for (_, target), found in worst.items() if (target == "cloud") == up for profile in found}
        for up in (True, False)
    ]
    return list(sides[0]), list(sides[1])


def _rate(traffic: CrossTraffic) -> float:
    if traffic.kind != "trace":
        return traffic.rate
    return max(traffic.mean_rate(traffic.rows[-1][0] or 1.0), traffic.rows[-1][1])


def _shares(channel: ChannelProfile, members: list[str], others: float) -> dict[str, float]:
    """What each member gets if all send."""
    alone = shares(channel, members)
    if not others:
        return alone
    left = {member: rate * (1 - min(1.0, others / channel.rate)) for member, rate in alone.items()}
    if not channel.rule.own_queues:
        return left
    together = shares(channel, [*members, _OTHERS])
    return {member: max(left[member], together[member]) for member in members}


def _slowed(profile: LinkProfile, rates: Sequence[float], delay: float) -> LinkProfile:
    """A profile with at most these rates and another delay; its own queue takes as long as before."""
    if not rates:
        return profile
    if profile.rate is None:
        own = 0.0
    else:
        own = 8 * (profile.buffer_limit or 0) / profile.rate
    rate = min([*rates, *([] if profile.rate is None else [profile.rate])])
    return replace(
        profile,
        latency=min(profile.latency + delay, LONGEST),
        rate=max(rate, 1.0),
        buffer=min(own, LONGEST),
        buffer_bytes=None,
    )


def media_beyond_kernel(plan: Plan) -> str:
    """What the kernel engine cannot do of a plan's links and media, see `beyond_kernel`."""
    if any(link.nat_timeout is not None for link in plan.links):
        return "it has no NAT"
    ways = [(link.source, link.target, link.profile, link.crossings) for link in plan.links]
    traffic = [each.channel for each in plan.cross_traffic]
    return beyond_kernel(channels_of(plan.media), ways, traffic, several_hosts=bool(plan.hosts))


def seen_alone(plan: Plan, engine: str) -> dict[str, ChannelProfile]:
    """The channels of a plan as one member of each sees them: the kernel engine gives it a part of the buffer."""
    channels = channels_of(plan.media)
    members = defaultdict[str, set[str]](set)
    for link in plan.links if engine == "kernel" else ():
        for each in link.crossings:
            members[each.channel].add(each.member)
    for name, found in members.items():
        part = queue_limit(channels[name], len(found))
        channels[name] = replace(channels[name], size=part)
    return channels
