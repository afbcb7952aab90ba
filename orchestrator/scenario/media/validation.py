"""Validation of shared media: their members, routes and cross traffic, and whether engine and driver have them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from netem.media.profile import ChannelProfile, Crossing
from netem.profile import LinkProfile
from netem.schedules.schedule import Schedule
from netem.schedules.traces import TraceTable
from netem.units import format_duration, format_rate
from orchestrator.scenario.media.routes import unknown_medium
from orchestrator.scenario.media.section import CrossTrafficSpec, MediumSpec, slowest
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.engines import ENGINES, candidate_engines
from orchestrator.scenario.sections.links import Mistake


def check_media(scenario: Scenario) -> Iterator[Mistake]:
    media = scenario.resolved_media
    yield from media.mistakes
    if scenario.shared:
        yield from _abilities(scenario)
    used: defaultdict[str, list[tuple[int, CrossTrafficSpec]]] = defaultdict(list)
    for index, spec in enumerate(scenario.cross_traffic):
        mistakes = list(_cross_traffic(scenario, spec))
        for key, message in mistakes:
            yield ("cross_traffic", index, key), message
        if mistakes:
            continue
        for channel in media.on(spec.on, spec.direction):
            entries = used[channel]
            for other, earlier in entries:
                if _overlap(spec, earlier):
                    message = f"overlaps entry {other} on {channel}, which has one at a time: give them other times"
                    yield ("cross_traffic", index), message
                    break
            entries.append((index, spec))


def _overlap(one: CrossTrafficSpec, other: CrossTrafficSpec) -> bool:
    if one.at >= other.end:
        return False
    return other.at < one.end


def _abilities(scenario: Scenario) -> Iterator[Mistake]:
    """Refuse what the engine or a population does not have."""
    media = scenario.resolved_media
    profiles = scenario.resolved_links.profiles
    channels: dict[str, ChannelProfile] = {}
    for of_medium in media.channels.values():
        channels |= of_medium
    ways = []
    for ends, way in media.crossings.items():
        source, target = ends
        profile = profiles.get(ends, LinkProfile())
        ways.append((source, target, profile, way))
    kind = scenario.driver_kind
    if scenario.shared and not kind.shapes_links:
        yield ("shared",), f"the driver {kind.name} does not shape links: leave it out, or use another driver"
    with_traffic = [traffic.on for traffic in scenario.cross_traffic]
    beyond = beyond_kernel(channels, ways, with_traffic, several_hosts=kind.several_hosts)
    if not candidate_engines(scenario.engine, beyond):
        able = []
        for engine in ENGINES:
            if candidate_engines(engine, beyond):
                able.append(engine)
        yield ("engine",), f"{scenario.engine} cannot share these media ({beyond}): take {' or '.join(able)}"
    if scenario.population is not None:
        for name, spec in scenario.shared.items():
            yield from _of_clients(name, spec)


def _of_clients(name: str, spec: MediumSpec) -> Iterator[Mistake]:
    """Refuse what the clients of a population do not have of a medium."""
    if spec.rates:
        path = ("shared", name, "rates")
        yield path, "are those of single nodes: clients of a population have clients.links"
    schedules = spec.schedules(name).values()
    if any(map(_cuts, schedules)):
        path = ("shared", name, "schedule")
        why = "a rate of 0 cuts links, and those of a population's clients cannot be cut"
        yield path, f"csv: {why}: write a low rate"


def _cuts(schedule: Schedule) -> bool:
    if not isinstance(schedule, TraceTable):
        return False
    return any(row.cut for row in schedule.rows)


def _cross_traffic(scenario: Scenario, spec: CrossTrafficSpec) -> Iterator[tuple[str, str]]:
    media = scenario.resolved_media
    after = scenario.stop.after
    if spec.on not in media.channels:
        yield "on", unknown_medium(spec.on, media.channels)
        return
    channels = media.channels[spec.on]
    names = media.on(spec.on, spec.direction)
    if not names:
        yield "direction", f"{spec.on} is half duplex, so that both directions are one channel: leave it out"
        return
    medium = scenario.shared[spec.on]
    schedules = medium.schedules(spec.on)
    rates = []
    for name in names:
        at_lowest = slowest(channels[name], schedules.get(name))
        rates.append(at_lowest.rate)
    least = min(rates)
    traffic = spec.traffic()
    if spec.kind != "trace":
        if traffic.rate >= least:
            yield "rate", _too_much(spec, traffic.rate, least)
    else:
        most = max(rate for _, rate in traffic.rows)
        last_at, last_rate = traffic.rows[-1]
        mean = traffic.mean_rate(last_at or 1.0)
        if most > least or mean >= least or last_rate >= least:
            yield "csv", _too_much(spec, most, least)
    if after is not None and spec.at >= after:
        yield "at", f"the run is over by then: stop.after is {format_duration(after)}"


def _too_much(spec: CrossTrafficSpec, rate: float, least: float) -> str:
    has = format_rate(least)
    return f"{format_rate(rate)} leaves nothing of {spec.on}, which has {has}: lower it"


def beyond_kernel(
    channels: Mapping[str, ChannelProfile],
    ways: Iterable[tuple[str, str, LinkProfile, Sequence[Crossing]]],
    cross_traffic: Sequence[str],
    *,
    several_hosts: bool,
) -> str:
    """The first thing in a few words; empty if the kernel engine can share these channels.

    ``ways``: the source, the target and the profile of each link, and the channels that it crosses. ``cross_traffic``:
    the media or channels that carry it. In the kernel a packet crosses the channel before its link, so what the link
    loses has used the channel.
    """
    if channels and several_hosts:
        return "their nodes are on several hosts"
    if cross_traffic:
        return f"cross traffic on {cross_traffic[0]}"
    for name, profile in channels.items():
        rule = profile.rule
        turns_by_packets = rule.own_rates and not rule.by_rate  # the kernel's queues count bytes
        if turns_by_packets or _has_own_rates(profile):
            of_members = " with rates of members" if profile.rates else ""
            return f"{name} has `share: {profile.share}`{of_members}"
    for source, target, link, way in ways:
        if len(way) > 1:
            return f"the link {source} -> {target} crosses {len(way)} media"
        if way and link.mean_loss:
            channel = way[0].channel
            return f"the link {source} -> {target} crosses {channel} and loses packets"
    return ""


def _has_own_rates(channel: ChannelProfile) -> bool:
    """Whether a member has another rate than the channel."""
    for rate in channel.rates.values():
        if rate != channel.rate:
            return True
    return False
