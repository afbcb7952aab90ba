"""Before training, let members of one channel of each kind send together, and compare what they get with its rule.

Channels are of one kind if they have the same profile and the same number of members. `netem.measurement.contention`
plans and judges; the values go where those of the links go, with the channel as source.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Container, Iterable, Mapping, Sequence
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
from netem.measurement.endpoints import probe_arguments
from netem.measurement.probe_plan import LONGEST_ANSWER, Measurement, ProbePlan
from netem.media.profile import ChannelProfile
from orchestrator.errors import HostError
from orchestrator.fabric.base import NodeHandle
from orchestrator.fabric.link_prober import Prober
from orchestrator.planning.plan import LinkPlan, Plan, channels_of
from orchestrator.run.links.measured_values import MeasuredValue
from orchestrator.scenario.sections.topology import Ends
from orchestrator.together import together

TIMEOUT = 60.0  # s for one channel, in addition to what its measurements take
STARTING = 0.3  # s until all senders are ready; and the time that their responders took, so many times:
PATIENCE = 1.5, 4.0  # the second one if a value does not pass, for instance because a sender was late


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
    """The channels to measure, with at least two members on links between nodes that are ``present``."""
    online = set(present)
    channels = channels_of(plan.media)
    probed = dict[object, ProbedChannel]()  # by kind
    links = []
    for link in plan.links:
        ends = {link.source, link.target}
        if ends <= online:
            links.append(link)
    for medium in plan.media:
        for name, profile in medium.channels.items():
            members = _members_of(name, links)
            rates = sorted(profile.rate_of(member) for member in members)
            kind = (
                profile.rate,
                profile.share,
                profile.buffer,
                tuple(rates),
            )
            if len(members) >= 2 and kind not in probed:
                loading, idle = _divided(name, members, channels)
                widest = _widest_apart_from(medium.channels, links, channels)
                probed[kind] = ProbedChannel(name, loading, idle, widest)
    return list(probed.values())


def _divided(
    channel: str,
    members: Mapping[str, LinkPlan],
    channels: Channels,
) -> tuple[dict[str, LinkPlan], LinkPlan | None]:
    """The links of the members that send, and the one of a member that is idle, if there is one."""
    sending_members = senders(channel, _ways(members), channels)
    loading = {member: members[member] for member in sending_members}
    for member, link in members.items():
        if member not in loading:
            return loading, link
    return loading, None


def _members_of(channel: str, links: Iterable[LinkPlan]) -> dict[str, LinkPlan]:
    """The first link of each member of a channel."""
    members: dict[str, LinkPlan] = {}
    for link in links:
        for crossing in link.crossings:
            if crossing.channel == channel:
                members.setdefault(crossing.member, link)
    return members


def _widest_apart_from(
    own: Container[str],
    links: Iterable[LinkPlan],
    channels: Channels,
) -> LinkPlan | None:
    """The fastest link that crosses only channels other than these; None if there is none."""
    apart = []
    for link in links:
        shared = any(crossing.channel in own for crossing in link.crossings)
        if link.crossings and not shared:
            apart.append(link)
    return max(apart, key=lambda link: _rate(link, channels), default=None)


def seconds_of(probed: ProbedChannel, plan: Plan, mtu: int) -> float:
    """About how long the measurement of a channel takes, if it is not repeated."""
    load, _, pinging = _planned(probed, plan, mtu)
    saturations = []
    for saturation in load.saturations.values():
        saturations.append(saturation.seconds + saturation.drain)
    trains = []
    for train in pinging:
        trains.append(train.count * train.spacing + train.wait)
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
) -> list[tuple[str, MeasuredValue]] | str:
    """The values of a channel, each with the link or member that it is about ('' for the whole channel), or the
    reason why there are none. ``engine``: that of the links."""
    seconds = seconds_of(probed, plan, prober.mtu)
    timeout = TIMEOUT + len(PATIENCE) * seconds
    try:
        async with asyncio.timeout(timeout):
            for patience in PATIENCE:
                values = await _measure(probed, plan, handles, prober, patience, engine)
                if all(value.verdict == "pass" for _, value in values):
                    break
            return values
    except (HostError, NetemError, TimeoutError, ValueError) as error:
        return str(error) or f"it took more than {timeout:.0f} s"


async def _measure(
    probed: ProbedChannel,
    plan: Plan,
    handles: Mapping[str, NodeHandle],
    prober: Prober,
    patience: float,
    engine: str,
) -> list[tuple[str, MeasuredValue]]:
    channels = channels_of(plan.media)
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

        async def probe_all(links: Sequence[LinkPlan], sent: Sequence[ProbePlan]) -> list[Measurement]:
            probes = map(probe, links, sent)
            return await asyncio.gather(*probes)

        quiet = await probe_all(watched, pinging)
        ahead = await _clocks_ahead(prober, handles, links)
        answers = _seconds_of_answers(profile, len(links))
        saturating = _saturating(probed, plan, load, answers)
        # Each sender first sends a probe, waits for its echo, and asks for the results.
        longest_wait = max(sent.wait for sent in saturating)
        start = time.time() + STARTING + patience * took + 2 * longest_wait
        plans = [replace(sent, start=start) for sent in saturating]
        for link, pings_of_link in zip(watched, pinging, strict=True):
            wait = pings_of_link.wait
            if link is probed.idle:
                wait += 2 * profile.buffer
            during = replace(pings_of_link, start=start + load.filled, wait=wait)
            plans.append(during)
        for place, link in enumerate(links):
            offset = ahead[handles[link.source].host]
            on_this_clock = plans[place].start
            plans[place] = replace(plans[place], start=on_this_clock + offset)
        measurements = await probe_all(links, plans)
    of_members = {}
    for place, (member, link) in enumerate(probed.loading.items()):
        offset = ahead[handles[link.target].host]
        of_members[member] = _on_this_clock(measurements[place], offset)
    pinged = _pinged_by_idle(probed, watched, pinging)
    if engine == "kernel":
        pinged += _beyond_own_links(load, _ways(probed.loading))
    values = []
    for judgement in judge_contention(load, profile.rule, of_members, pinged):
        values.append(("", MeasuredValue.judged(judgement)))
    back = _ways_back(plan)
    loaded = measurements[len(saturating) :]
    for place, link in enumerate(watched):
        value = _of_round_trips(
            link,
            back[_ends(link)],
            quiet=quiet[place],
            loaded=loaded[place],
            probed=probed,
            load=load,
            profile=profile,
        )
        name = " → ".join(_ends(link))
        values.append((name, value))
    return values


def _saturating(
    probed: ProbedChannel,
    plan: Plan,
    load: Contention,
    answers: float,
) -> list[ProbePlan]:
    """What the senders send. ``answers``: how many seconds the answers of the far ends take."""
    back = _ways_back(plan)
    plans = []
    for member, link in probed.loading.items():
        back_profile = back[_ends(link)].profile
        saturation = load.saturations[member]
        saturating = sending(_way(link), back_profile, saturation, 0.0)
        plans.append(_patient(saturating, answers))
    return plans


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


def _pinged_by_idle(
    probed: ProbedChannel,
    watched: Iterable[LinkPlan],
    pinging: Iterable[ProbePlan],
) -> float:
    """The bit/s that the idle member takes from the senders."""
    rates = []
    for link, pings_of_link in zip(watched, pinging, strict=True):
        if link is probed.idle:
            rates.append(PING / pings_of_link.spacing)
    return sum(rates)


def _seconds_of_answers(channel: ChannelProfile, links: int) -> float:
    """How long the answers of the far ends of so many links take on a channel, all at the same time."""
    rates = [channel.rate, *channel.rates.values()]
    slowest = min(rates)
    return 8 * LONGEST_ANSWER * links / slowest


def _patient(sent: ProbePlan, answers: float) -> ProbePlan:
    """A plan that waits for answers that take so many seconds longer: a repeated question would load the channel."""
    return replace(sent, wait=sent.wait + answers)


def _planned(
    probed: ProbedChannel,
    plan: Plan,
    mtu: int,
) -> tuple[Contention, list[LinkPlan], list[ProbePlan]]:
    """What the members send, the links that are watched, and the single datagrams on these."""
    channels = channels_of(plan.media)
    back = _ways_back(plan)
    smallest_mtu = mtu
    for link in probed.loading.values():
        smallest_mtu = min(smallest_mtu, link.mtu or mtu, link.profile.drop_above or mtu)
    ways = _ways(probed.loading)
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
        train = pings(load, _way(link), back_profile, rate)
        pinging.append(train)
    return load, watched, pinging


def _ways_back(plan: Plan) -> dict[Ends, LinkPlan]:
    ways_back = {}
    for link in plan.links:
        ways_back[link.target, link.source] = link
    return ways_back


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
    back: LinkPlan,
    *,
    quiet: Measurement,
    loaded: Measurement,
    probed: ProbedChannel,
    load: Contention,
    profile: ChannelProfile,
) -> MeasuredValue:
    if link is probed.idle:
        passes = 0
        for crossing in (*link.crossings, *back.crossings):
            passes += crossing.channel == probed.name
        judgement = judge_queue_of_idle(load, profile, passes, quiet, loaded)
    else:
        jitter = link.profile.jitter + back.profile.jitter
        judgement = judge_isolation(jitter, quiet, loaded)
    return MeasuredValue.judged(judgement)


def _on_this_clock(measurement: Measurement, ahead: float) -> Measurement:
    """A measurement with the times of arrival on this host's clock."""
    way = measurement.forward
    if way.first is None or way.last is None:
        return measurement
    first = way.first - ahead
    last = way.last - ahead
    forward = replace(way, first=first, last=last)
    return replace(measurement, forward=forward)


def _rate(link: LinkPlan, channels: Channels) -> float:
    profile = measured_alone(link, channels).profile
    return profile.rate or math.inf


def _ends(link: LinkPlan) -> Ends:
    return link.source, link.target


def _way(link: LinkPlan) -> Way:
    return Way(link.profile, link.crossings)


def _ways(links: Mapping[str, LinkPlan]) -> dict[str, Way]:
    ways = {}
    for member, link in links.items():
        ways[member] = _way(link)
    return ways
