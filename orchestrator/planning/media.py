"""Shared media in a plan: their channels, the traffic of others, what a member gets at worst, and how the kernel engine
has them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from netem.kernel.media import queue_limit
from netem.media.formulas import shares
from netem.media.profile import ChannelProfile, Crossing, CrossTraffic
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

_Way = tuple[Crossing, ...]  # the channels that a direction of a link crosses
_OTHERS = "\0"  # stands for cross traffic among the members of a channel


def plan_media(scenario: Scenario) -> tuple[MediumPlan, ...]:
    media = scenario.resolved_media
    planned = []
    for name, spec in scenario.shared.items():
        planned.append(
            MediumPlan(
                name=name,
                channels=media.channels[name],
                members=media.members[name],
                schedules=spec.schedules(name),
            )
        )
    return tuple(planned)


def plan_cross_traffic(scenario: Scenario) -> tuple[CrossTrafficPlan, ...]:
    """The cross traffic on each channel. Its seed depends on the channel and on how much there is on it before."""
    media = scenario.resolved_media
    planned: list[CrossTrafficPlan] = []
    counts: Counter[str] = Counter()
    for spec in scenario.cross_traffic:
        for channel in media.on(spec.on, spec.direction):
            counts[channel] += 1
            number = str(counts[channel])
            seed = derive_seed(scenario.seed, "cross traffic", channel, number)
            planned.append(
                CrossTrafficPlan(
                    channel,
                    traffic=spec.traffic(),
                    at=spec.at,
                    duration=spec.for_,
                    seed=seed,
                    file=spec.file,
                )
            )
    return tuple(planned)


def media_of(plan: Plan) -> ResolvedMedia:
    media = ResolvedMedia()
    for medium in plan.media:
        media.channels[medium.name] = dict(medium.channels)
        media.members[medium.name] = medium.members
    for link in plan.links:
        if link.crossings:
            media.crossings[link.source, link.target] = link.crossings
    return media


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
    links = list(links)
    ways = _ways(links, faults)
    rates, delays = _channels_at_worst(ways, media, cross_traffic)
    worst = {}
    for link in links:
        ends = (link.source, link.target)
        slowed = []
        for way in ways[ends]:
            way_rates = [rates[crossing] for crossing in way]
            way_delay = sum(delays[crossing] for crossing in way)
            for profile in link.extremes:
                slowed.append(_slowed(profile, way_rates, way_delay))
        worst[ends] = slowed
    return worst


def _ways(
    links: Iterable[LinkPlan],
    faults: Iterable[Fault],
) -> Mapping[Ends, Iterable[_Way]]:
    """The different ways of each direction: as planned, and after handovers."""
    ways: defaultdict[Ends, dict[_Way, None]] = defaultdict(dict)
    for link in links:
        ways[link.source, link.target][link.crossings] = None
    for fault in faults:
        for source, target, way in fault.crossings:
            ways[source, target][way] = None
    return ways


def _channels_at_worst(
    ways: Mapping[Ends, Iterable[_Way]],
    media: Sequence[MediumPlan],
    cross_traffic: Iterable[CrossTrafficPlan],
) -> tuple[dict[Crossing, float], dict[Crossing, float]]:
    """The rate in bit/s of each member of a channel, and the seconds that its full queue takes."""
    channels = {}
    for medium in media:
        for name, channel in medium.channels.items():
            channels[name] = slowest(channel, medium.schedules.get(name))
    members: defaultdict[str, set[str]] = defaultdict(set)
    for ways_of_link in ways.values():
        for way in ways_of_link:
            for crossing in way:
                members[crossing.channel].add(crossing.member)
    others: defaultdict[str, float] = defaultdict(float)
    for planned in cross_traffic:
        rate = _rate(planned.traffic)
        others[planned.channel] = max(others[planned.channel], rate)
    rates: dict[Crossing, float] = {}
    delays: dict[Crossing, float] = {}
    for name, on_channel in members.items():
        channel = channels[name]
        shares_of_members = _shares(channel, sorted(on_channel), others[name])
        for member, rate in shares_of_members.items():
            crossing = Crossing(name, member)
            rates[crossing] = rate
            delays[crossing] = 8 * channel.buffer_bytes / (len(on_channel) * rate)  # an equal part of the buffer
    return rates, delays


def clients_at_worst(
    population: Population,
    media: Sequence[MediumPlan],
    cross_traffic: Iterable[CrossTrafficPlan],
) -> tuple[list[LinkProfile], list[LinkProfile]]:
    """The profiles of clients to plan with, up and down: as if all those of a round sent at the same time."""
    ups = [link.up for link in population.links]
    downs = [link.down for link in population.links]
    if not media:
        return ups, downs
    random = np.random.default_rng(derive_seed(population.seed, "media"))
    drawn = random.integers(population.size, size=population.asked)
    links = []
    for number, client in enumerate(set(drawn.tolist())):
        name = client_name(client)
        place = number % len(ups)
        way_up, way_down = population.crossings(name)
        up = LinkPlan(name, "cloud", "", ups[place], 0, crossings=way_up)
        down = LinkPlan("cloud", name, "", downs[place], 0, crossings=way_down)
        links += [up, down]
    worst = at_worst(links, media, cross_traffic, ())
    slowed_up: dict[LinkProfile, None] = {}
    slowed_down: dict[LinkProfile, None] = {}
    for (_, target), profiles in worst.items():
        if target == "cloud":
            slowed_up |= dict.fromkeys(profiles)
        else:
            slowed_down |= dict.fromkeys(profiles)
    return list(slowed_up), list(slowed_down)


def _rate(traffic: CrossTraffic) -> float:
    if traffic.kind != "trace":
        return traffic.rate
    last_at, last_rate = traffic.rows[-1]
    mean = traffic.mean_rate(last_at or 1.0)
    return max(mean, last_rate)


def _shares(
    channel: ChannelProfile,
    members: list[str],
    others: float,
) -> dict[str, float]:
    """What each member gets if all send."""
    alone = shares(channel, members)
    if not others:
        return alone
    free = 1 - others / channel.rate  # a scenario leaves some of it
    left = {member: rate * free for member, rate in alone.items()}
    if not channel.rule.own_queues:
        return left
    together = shares(channel, [*members, _OTHERS])
    largest = {}
    for member in members:
        largest[member] = max(left[member], together[member])
    return largest


def _slowed(profile: LinkProfile, rates: Sequence[float], delay: float) -> LinkProfile:
    """A profile with at most these rates and another delay; its own queue takes as long as before."""
    if not rates:
        return profile
    rate = min(rates)
    own_queue = 0.0
    if profile.rate is not None:
        rate = min(rate, profile.rate)
        own_queue = 8 * (profile.buffer_limit or 0) / profile.rate
    return replace(
        profile,
        latency=min(profile.latency + delay, LONGEST),
        rate=max(rate, 1.0),
        buffer=min(own_queue, LONGEST),
        buffer_bytes=None,
    )


def media_beyond_kernel(plan: Plan) -> str:
    """What the kernel engine cannot do of a plan's links and media, see `beyond_kernel`."""
    if any(link.nat_timeout is not None for link in plan.links):
        return "it has no NAT"
    channels = channels_of(plan.media)
    ways = []
    for link in plan.links:
        ways.append((link.source, link.target, link.profile, link.crossings))
    with_traffic = [traffic.channel for traffic in plan.cross_traffic]
    several_hosts = bool(plan.hosts)
    return beyond_kernel(channels, ways, with_traffic, several_hosts=several_hosts)


def seen_alone(plan: Plan, engine: str) -> dict[str, ChannelProfile]:
    """The channels of a plan as one member of each sees them: the kernel engine gives it a part of the buffer."""
    channels = channels_of(plan.media)
    if engine != "kernel":
        return channels
    members = defaultdict[str, set[str]](set)
    for link in plan.links:
        for crossing in link.crossings:
            members[crossing.channel].add(crossing.member)
    for name, on_channel in members.items():
        part = queue_limit(channels[name], len(on_channel))
        channels[name] = replace(channels[name], size=part)
    return channels
