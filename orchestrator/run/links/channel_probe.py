"""Before training, let members of one channel of each kind send together, and compare what they get with its rule.

Channels are of one kind if they have the same profile and the same number of members. `netem.measurement.contention`
plans and judges; the figures go where those of the links go, with the channel as source.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Mapping, Sequence
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
    if link.crossings:
        return replace(link, profile=alone(_way(link), channels))
    return link


def others_of(link: LinkPlan, channels: Channels) -> list[tuple[float, float]]:
    """The queues that a link crosses besides the one of `measured_alone`: bit/s, and the longest delay in s."""
    if link.crossings:
        return other_queues(_way(link), channels)
    return []


def one_of_each_kind(plan: Plan, present: Iterable[str]) -> list[ProbedChannel]:
    """The channels to measure, with at least two members whose links join nodes that are ``present``."""
    there = set(present)
    channels = channels_of(plan.media)
    found = dict[object, ProbedChannel]()
    links = [link for link in plan.links if {link.source, link.target} <= there]
    for medium in plan.media:
        for name, profile in medium.channels.items():
            members: dict[str, LinkPlan] = {}
            for link in links:
                for crossing in link.crossings:
                    if crossing.channel == name:
                        members.setdefault(crossing.member, link)
            rates = tuple(sorted(map(profile.rate_of, members)))
            kind = (profile.rate, profile.share, profile.buffer, rates)
            if len(members) < 2 or kind in found:
                continue
            chosen = senders(name, {member: _way(link) for member, link in members.items()}, channels)
            idle = next((link for member, link in members.items() if member not in chosen), None)
            own = medium.channels.keys()
            apart = [x for x in links if x.crossings and not any(each.channel in own for each in x.crossings)]
            widest = max(apart, key=lambda link: _rate(link, channels), default=None)
            loading = {member: members[member] for member in chosen}
            found[kind] = ProbedChannel(name, loading, idle, widest)
    return list(found.values())


def seconds_of(probed: ProbedChannel, plan: Plan, mtu: int) -> float:
    """About how long the measurement of a channel takes, if it is not repeated."""
    load, _, pinging = _planned(probed, plan, mtu)
    saturations = [each.seconds + each.drain for each in load.saturations.values()]
    trains = [each.count * each.spacing + each.wait for each in pinging]
    answers = _seconds_of_answers(channels_of(plan.media)[probed.name], len(probed.loading))
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
    timeout = TIMEOUT + len(PATIENCE) * seconds_of(probed, plan, prober.mtu)
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
            responding = prober.responding(handles[link.target], plan.node(link.target).address)
            ready[_ends(link)] = await stack.enter_async_context(responding)

        await together(map(respond, links))
        took = time.monotonic() - began

        async def probe(link: LinkPlan, sent: ProbePlan) -> Measurement:
            arguments = probe_arguments(plan.node(link.target).address, ready[_ends(link)], sent)
            return Measurement.from_mapping(await prober.probe(handles[link.source], arguments))

        quiet = await asyncio.gather(*map(probe, watched, pinging))
        on = {handles[node].host: handles[node] for link in links for node in _ends(link)}
        ahead = {host: await prober.now(handle) - time.time() for host, handle in on.items()}  # the clock of each host
        answers = _seconds_of_answers(profile, len(links))
        sent = [
            _patient(sending(ways[member], back[_ends(link)].profile, load.saturations[member], 0.0), answers)
            for member, link in probed.loading.items()
        ]
        # Each sender first sends a probe, waits for its echo, and asks for the results.
        start = time.time() + STARTING + patience * took + 2 * max(each.wait for each in sent)
        sent = [replace(each, start=start) for each in sent]
        late = [
            replace(each, start=start + load.filled, wait=each.wait + 2 * profile.buffer * (link is probed.idle))
            for link, each in zip(watched, pinging, strict=True)
        ]
        plans = [
            replace(each, start=each.start + ahead[handles[link.source].host])
            for link, each in zip(links, [*sent, *late], strict=True)
        ]
        found = await asyncio.gather(*map(probe, links, plans))
    of = {
        member: _on_this_clock(each, ahead[handles[link.target].host])
        for (member, link), each in zip(probed.loading.items(), found, strict=False)
    }
    pinged = sum(PING / each.spacing for link, each in zip(watched, pinging, strict=True) if link is probed.idle)
    if engine == "kernel":
        pinged += _beyond_own_links(load, ways)
    figures = [("", Figure.judged(each)) for each in judge_contention(load, profile.rule, of, pinged)]
    for link, *trips in zip(watched, quiet, found[len(sent) :], strict=True):
        figures.append((" → ".join(_ends(link)), _of_round_trips(link, trips, probed, load, channels, back)))
    return figures


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
    mtu = min([mtu, *(link.mtu or mtu for link in probed.loading.values())])
    load = plan_contention(probed.name, ways, channels, mtu=mtu)
    watched = [link for link in (probed.idle if load.full else None, probed.apart) if link is not None]
    return (
        load,
        watched,
        [pings(load, _way(link), back[_ends(link)].profile, _rate(link, channels)) for link in watched],
    )


def _ways_back(plan: Plan) -> dict[Ends, LinkPlan]:
    return {(link.target, link.source): link for link in plan.links}


def _beyond_own_links(load: Contention, ways: Mapping[str, Way]) -> float:
    """The bit/s that senders offer beyond their own links, which in the kernel come after the channel."""
    limited = [
        name for name, way in ways.items() if way.profile.rate is not None and load.rates[name] >= way.profile.rate
    ]
    sent = [load.saturations[name] for name in limited]
    return sum(each.offer - load.rates[name] for name, each in zip(limited, sent, strict=True) if each.size)


def _of_round_trips(
    link: LinkPlan,
    trips: Sequence[Measurement],
    probed: ProbedChannel,
    load: Contention,
    channels: Channels,
    back: Mapping[Ends, LinkPlan],
) -> Figure:
    other = back[_ends(link)]
    if link is probed.idle:
        passes = [each.channel for each in (*link.crossings, *other.crossings)].count(probed.name)
        return Figure.judged(judge_queue_of_idle(load, channels[probed.name], passes, *trips))
    return Figure.judged(judge_isolation(link.profile.jitter + other.profile.jitter, *trips))


def _on_this_clock(found: Measurement, ahead: float) -> Measurement:
    """A measurement with the times of arrival on this host's clock."""
    way = found.forward
    if way.first is None or way.last is None:
        return found
    return replace(found, forward=replace(way, first=way.first - ahead, last=way.last - ahead))


def _rate(link: LinkPlan, channels: Channels) -> float:
    return measured_alone(link, channels).profile.rate or math.inf


def _ends(link: LinkPlan) -> Ends:
    return link.source, link.target


def _way(link: LinkPlan) -> Way:
    return Way(link.profile, link.crossings)
