"""Before training, let members of one channel of each kind send together, and compare what they get with its rule.

Channels are of one kind if they have the same profile and the same number of members. `netem.measurement.contention`
plans and judges; the figures go where those of the links go, with the channel as source.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Container, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, NamedTuple

from netem.errors import NetemError
from netem.measurement.contention import (
    PING,
    Channels,
    Contention,
    Way,
    alone,
    judge_contention,
    judge_isolation,
    judge_queue_of_idle,
    other_queues,
    pings,
    plan_contention,
    senders,
    sending,
)
from netem.measurement.measure import LONGEST_ANSWER, Measurement, ProbePlan, probe_arguments
from netem.media.profile import ChannelProfile
from orchestrator.errors import HostError
from orchestrator.fabric.base import NodeHandle
from orchestrator.fabric.prober import Prober
from orchestrator.planning.plan import LinkPlan, Plan, channels_of
from orchestrator.run.links.figures import Figure
from orchestrator.scenario.sections.topology import Ends
from orchestrator.together import together

TIMEOUT = 60.0  # s for one channel, in addition to what its measurements take
STARTING = 0.3  # s until all senders are ready; and the time that their responders took, so many times:
PATIENCE = 1.5, 4.0  # the second one if a figure does not pass, for instance because a sender was late


class ProbedChannel(NamedTuple):
    """A channel, the links of its ``loading`` members, of one that is ``idle``, and a link of other media."""

    name: str
    loading: Mapping[str, LinkPlan]
    idle: LinkPlan | None
    apart: LinkPlan | None


def measured_alone(link: LinkPlan, channels: Channels) -> LinkPlan:
    """A link with the profile that it shows while nothing else crosses its channels."""
    if not link.crossings:
        return link
    profile = alone(_way(link), channels)
    return replace(link, profile=profile)


def others_of(link: LinkPlan, channels: Channels) -> list[tuple[float, float]]:
    """The queues that a link crosses in addition to that of `measured_alone`: bit/s, and the longest delay in s."""
    if link.crossings:
        return other_queues(_way(link), channels)
    return []


def one_of_each_kind(plan: Plan, present: Iterable[str]) -> list[ProbedChannel]:
    """The channels to measure, with at least two members whose links join nodes that are ``present``."""
    online = set(present)
    channels = channels_of(plan.media)
    probed = dict[object, ProbedChannel]()  # by kind
    links = [link for link in plan.links if {link.source, link.target} <= online]
    for medium in plan.media:
        for name, profile in medium.channels.items():
            members = _members_of(name, links)
            rates = sorted(profile.rate_of(member) for member in members)
            kind = (profile.rate, profile.share, profile.buffer, tuple(rates))
            if len(members) < 2 or kind in probed:
                continue
            ways = {member: _way(link) for member, link in members.items()}
            sending_members = senders(name, ways, channels)
            idle = [link for member, link in members.items() if member not in sending_members]
            apart = _apart_from(medium.channels, links)
            widest = max(apart, key=lambda link: _rate(link, channels), default=None)
            loading = {member: members[member] for member in sending_members}
            probed[kind] = ProbedChannel(name, loading, idle[0] if idle else None, widest)
    return list(probed.values())


def _members_of(channel: str, links: Iterable[LinkPlan]) -> dict[str, LinkPlan]:
    """The first link of each member of a channel."""
    members: dict[str, LinkPlan] = {}
    for link in links:
        for crossing in link.crossings:
            if crossing.channel == channel:
                members.setdefault(crossing.member, link)
    return members


def _apart_from(channels: Container[str], links: Iterable[LinkPlan]) -> list[LinkPlan]:
    """The links that cross only other channels than these."""
    apart = []
    for link in links:
        shared = any(crossing.channel in channels for crossing in link.crossings)
        if link.crossings and not shared:
            apart.append(link)
    return apart


def seconds_of(probed: ProbedChannel, plan: Plan, mtu: int) -> float:
    """About how long the measurement of a channel takes, if it is not repeated."""
    load, _, pinging = _planned(probed, plan, mtu)
    saturations = [saturation.seconds + saturation.drain for saturation in load.saturations.values()]
    trains = [pings.count * pings.spacing + pings.wait for pings in pinging]
    channel = channels_of(plan.media)[probed.name]
    answers = _seconds_of_answers(channel, len(probed.loading))
    longest = max(trains, default=0.0)
    return STARTING + longest + 2 * answers + max(saturations) + longest


async def measure(
    probed: ProbedChannel,
    plan: Plan,
    handles: Mapping[str, NodeHandle],
    prober: Prober,
    engine: str = "",
) -> list[tuple[str, Figure]] | str:
    """The figures of a channel, each with the link or member that it is about ('' for the whole channel), or the
    reason why there are none. ``engine``: that of the links."""
    seconds = seconds_of(probed, plan, prober.mtu)
    timeout = TIMEOUT + len(PATIENCE) * seconds
    try:
        async with asyncio.timeout(timeout):
            for patience in PATIENCE:
                figures = await _measure(probed, plan, handles, prober, patience, engine)
                if all(figure.verdict == "pass" for _, figure in figures):
                    break
            return figures
    except (HostError, NetemError, TimeoutError, ValueError) as error:
        return str(error) or f"it took more than {timeout:.0f} s"


async def _measure(
    probed: ProbedChannel,
    plan: Plan,
    handles: Mapping[str, NodeHandle],
    prober: Prober,
    patience: float,
    engine: str,
) -> list[tuple[str, Figure]]:
    channels = channels_of(plan.media)
    back = _ways_back(plan)
    ways = {member: _way(link) for member, link in probed.loading.items()}
    profile = channels[probed.name]
    load, watched, pinging = _planned(probed, plan, prober.mtu)
    links = [*probed.loading.values(), *watched]
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        ready: dict[Ends, Mapping[str, Any]] = {}

        async def respond(link: LinkPlan) -> None:
            address = plan.node(link.target).address
            responding = prober.responding(handles[link.target], address)
            ready[_ends(link)] = await stack.enter_async_context(responding)

        await together(map(respond, links))
        took = time.monotonic() - began

        async def probe(link: LinkPlan, sent: ProbePlan) -> Measurement:
            address = plan.node(link.target).address
            arguments = probe_arguments(address, ready[_ends(link)], sent)
            answer = await prober.probe(handles[link.source], arguments)
            return Measurement.from_mapping(answer)

        quiet = await asyncio.gather(*map(probe, watched, pinging))
        ahead = await _clocks_ahead(prober, handles, links)
        answers = _seconds_of_answers(profile, len(links))
        sent = []
        for member, link in probed.loading.items():
            back_profile = back[_ends(link)].profile
            saturating = sending(ways[member], back_profile, load.saturations[member], 0.0)
            sent.append(_patient(saturating, answers))
        # Each sender first sends a probe, waits for its echo, and asks for the results.
        longest_wait = max(saturating.wait for saturating in sent)
        start = time.time() + STARTING + patience * took + 2 * longest_wait
        plans = [replace(saturating, start=start) for saturating in sent]
        for link, pings_of_link in zip(watched, pinging, strict=True):
            wait = pings_of_link.wait
            if link is probed.idle:
                wait += 2 * profile.buffer
            plans.append(replace(pings_of_link, start=start + load.filled, wait=wait))
        for place, link in enumerate(links):
            offset = ahead[handles[link.source].host]
            plans[place] = replace(plans[place], start=plans[place].start + offset)
        measurements = await asyncio.gather(*map(probe, links, plans))
    of_members = {}
    for (member, link), measurement in zip(probed.loading.items(), measurements, strict=False):
        offset = ahead[handles[link.target].host]
        of_members[member] = _on_this_clock(measurement, offset)
    pinged = _pinged_by_idle(probed, watched, pinging)
    if engine == "kernel":
        pinged += _beyond_own_links(load, ways)
    judgements = judge_contention(load, profile.rule, of_members, pinged)
    figures = [("", Figure.judged(judgement)) for judgement in judgements]
    loaded = measurements[len(sent) :]
    for link, before, during in zip(watched, quiet, loaded, strict=True):
        figure = _of_round_trips(link, before, during, probed, load, channels, back)
        figures.append((" → ".join(_ends(link)), figure))
    return figures


async def _clocks_ahead(
    prober: Prober, handles: Mapping[str, NodeHandle], links: Iterable[LinkPlan]
) -> dict[str, float]:
    """By how many seconds the clock of each host of these links is ahead of this host's."""
    on_host: dict[str, NodeHandle] = {}
    for link in links:
        for node in _ends(link):
            handle = handles[node]
            on_host[handle.host] = handle
    ahead = {}
    for host, handle in on_host.items():
        now = await prober.now(handle)
        ahead[host] = now - time.time()
    return ahead


def _pinged_by_idle(probed: ProbedChannel, watched: Iterable[LinkPlan], pinging: Iterable[ProbePlan]) -> float:
    """The bit/s that the idle member takes from the senders."""
    rates = []
    for link, pings_of_link in zip(watched, pinging, strict=True):
        if link is probed.idle:
            rates.append(PING / pings_of_link.spacing)
    return sum(rates)


def _seconds_of_answers(channel: ChannelProfile, links: int) -> float:
    """How long the answers of the far ends of so many links take on a channel, all at the same time."""
    slowest = min([channel.rate, *channel.rates.values()])
    return 8 * LONGEST_ANSWER * links / slowest


def _patient(sent: ProbePlan, answers: float) -> ProbePlan:
    """A plan that waits for answers that take so many seconds longer: a repeated question would load the channel."""
    return replace(sent, wait=sent.wait + answers)


def _planned(probed: ProbedChannel, plan: Plan, mtu: int) -> tuple[Contention, list[LinkPlan], list[ProbePlan]]:
    """What the members send, the links that are watched meanwhile, and the single datagrams on these."""
    channels = channels_of(plan.media)
    back = _ways_back(plan)
    ways = {member: _way(link) for member, link in probed.loading.items()}
    mtus = [link.mtu or mtu for link in probed.loading.values()]
    smallest_mtu = min([mtu, *mtus])
    load = plan_contention(probed.name, ways, channels, mtu=smallest_mtu)
    watched = []
    if load.full and probed.idle is not None:
        watched.append(probed.idle)
    if probed.apart is not None:
        watched.append(probed.apart)
    pinging = []
    for link in watched:
        back_profile = back[_ends(link)].profile
        rate = _rate(link, channels)
        pinging.append(pings(load, _way(link), back_profile, rate))
    return load, watched, pinging


def _ways_back(plan: Plan) -> dict[Ends, LinkPlan]:
    return {(link.target, link.source): link for link in plan.links}


def _beyond_own_links(load: Contention, ways: Mapping[str, Way]) -> float:
    """The bit/s that senders offer beyond their own links, which in the kernel come after the channel."""
    beyond = []
    for name, way in ways.items():
        limit = way.profile.rate
        if limit is None or load.rates[name] < limit:
            continue
        saturation = load.saturations[name]
        if saturation.size:
            beyond.append(saturation.offer - load.rates[name])
    return sum(beyond)


def _of_round_trips(
    link: LinkPlan,
    quiet: Measurement,
    loaded: Measurement,
    probed: ProbedChannel,
    load: Contention,
    channels: Channels,
    back: Mapping[Ends, LinkPlan],
) -> Figure:
    other = back[_ends(link)]
    if link is probed.idle:
        crossed = [crossing.channel for crossing in (*link.crossings, *other.crossings)]
        passes = crossed.count(probed.name)
        judgement = judge_queue_of_idle(load, channels[probed.name], passes, quiet, loaded)
    else:
        jitter = link.profile.jitter + other.profile.jitter
        judgement = judge_isolation(jitter, quiet, loaded)
    return Figure.judged(judgement)


def _on_this_clock(measurement: Measurement, ahead: float) -> Measurement:
    """A measurement with the times of arrival on this host's clock."""
    way = measurement.forward
    if way.first is None or way.last is None:
        return measurement
    first = way.first - ahead
    last = way.last - ahead
    return replace(measurement, forward=replace(way, first=first, last=last))


def _rate(link: LinkPlan, channels: Channels) -> float:
    profile = measured_alone(link, channels).profile
    return profile.rate or math.inf


def _ends(link: LinkPlan) -> Ends:
    return link.source, link.target


def _way(link: LinkPlan) -> Way:
    return Way(link.profile, link.crossings)
