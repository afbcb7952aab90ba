"""Before training, let members of one channel of each kind send together, and compare what they get with its rule.

Channels are of one kind if they have the same profile and the same number of members. `netem.measurement.contention`
plans and judges; the figures go where those of the links go, with the channel as source.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from netem.errors import NetemError
from netem.measurement.contention import (
    Channels,
    Contention,
    Way,
    alone,
    judge_contention,
    judge_isolation,
    judge_queue_of_idle,
    pings,
    plan_contention,
    senders,
    sending,
)
from netem.measurement.measure import Measurement, ProbePlan, probe_arguments
from orchestrator.errors import HostError
from orchestrator.fabric.base import Handle
from orchestrator.fabric.prober import Prober
from orchestrator.planning.plan import LinkPlan, Plan
from orchestrator.run.link_figures import Figure
from orchestrator.scenario.sections.topology import Ends

TIMEOUT = 60.0  # s for one channel
STARTING = 0.6, 0.2  # s until the senders are ready: all, and each


class ProbedChannel(NamedTuple):
    """A channel, and the links of its ``loading`` members. ``idle``: of a member that does not send; ``apart``: a link
    that crosses other media only. Both may be None."""

    name: str
    loading: Mapping[str, LinkPlan]
    idle: LinkPlan | None
    apart: LinkPlan | None


def channels_of(plan: Plan) -> Channels:
    """All channels of a plan."""
    return {name: profile for medium in plan.media for name, profile in medium.channels.items()}


def measured_alone(link: LinkPlan, channels: Channels) -> LinkPlan:
    """A link with the profile that it shows while nothing else crosses its channels."""
    return replace(link, profile=alone(_way(link), channels)) if link.crossings else link


def one_of_each_kind(plan: Plan, present: Iterable[str]) -> list[ProbedChannel]:
    """The channels to measure, with at least two members whose links join nodes that are ``present``."""
    there, channels, found = set(present), channels_of(plan), dict[object, ProbedChannel]()
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
            apart = (x for x in links if x.crossings and not any(each.channel in own for each in x.crossings))
            loading = {member: members[member] for member in chosen}
            found[kind] = ProbedChannel(name, loading, idle, next(apart, None))
    return list(found.values())


async def measure(
    probed: ProbedChannel, plan: Plan, handles: Mapping[str, Handle], prober: Prober
) -> list[tuple[str, Figure]] | str:
    """The figures of a channel, each with the link or member that it is about ('' for the whole channel), or the
    reason why there are none."""
    try:
        async with asyncio.timeout(TIMEOUT):
            return await _measure(probed, plan, handles, prober)
    except (HostError, NetemError, TimeoutError, ValueError) as error:
        return str(error) or f"it took more than {TIMEOUT:.0f} s"


async def _measure(
    probed: ProbedChannel, plan: Plan, handles: Mapping[str, Handle], prober: Prober
) -> list[tuple[str, Figure]]:
    channels, links = channels_of(plan), {(link.source, link.target): link for link in plan.links}
    ways = {member: _way(link) for member, link in probed.loading.items()}
    load = plan_contention(probed.name, ways, channels, mtu=prober.mtu)

    async def run(link: LinkPlan, sent: ProbePlan) -> Measurement:
        address = plan.node(link.target).address
        async with prober.responding(handles[link.target], address) as ready:
            arguments = probe_arguments(address, ready, sent)
            return Measurement.from_mapping(await prober.probe(handles[link.source], arguments))

    async def ping(link: LinkPlan, start: float, queue: float) -> tuple[Measurement, Measurement]:
        back = links[link.target, link.source]
        rate = min(measured_alone(each, channels).profile.rate or float("inf") for each in (link, back))
        quiet = await run(link, pings(rate, _way(link), back.profile))
        return quiet, await run(link, pings(rate, _way(link), back.profile, start, queue))

    idle = probed.idle if load.full else None
    watched = [link for link in (idle, probed.apart) if link is not None]
    start = time.time() + STARTING[0] + STARTING[1] * (len(ways) + 2 * len(watched))
    profile = channels[probed.name]
    sent = (
        run(link, sending(ways[member], links[link.target, link.source].profile, load.saturations[member], start))
        for member, link in probed.loading.items()
    )
    pinged = [ping(link, start + load.filled, 2 * profile.buffer * (link is idle)) for link in watched]
    found, round_trips = await asyncio.gather(asyncio.gather(*sent), asyncio.gather(*pinged))
    of = dict(zip(probed.loading, found, strict=True))
    told = [("", Figure.judged(each)) for each in judge_contention(load, profile.share, of)]
    for link, trips in zip(watched, round_trips, strict=True):
        told.append(_of_round_trips(link, trips, probed, load, channels, links))
    return told


def _of_round_trips(
    link: LinkPlan,
    trips: tuple[Measurement, Measurement],
    probed: ProbedChannel,
    load: Contention,
    channels: Channels,
    links: Mapping[Ends, LinkPlan],
) -> tuple[str, Figure]:
    name, back = f"{link.source} → {link.target}", links[link.target, link.source]
    if link is probed.idle:
        passes = [each.channel for each in (*link.crossings, *back.crossings)].count(probed.name)
        return name, Figure.judged(judge_queue_of_idle(load, channels[probed.name], passes, *trips))
    return name, Figure.judged(judge_isolation(link.profile.jitter + back.profile.jitter, *trips))


def _way(link: LinkPlan) -> Way:
    return Way(link.profile, link.crossings)
