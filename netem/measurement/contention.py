"""The probe of a channel of a shared medium: some members send together for about a second, and all results follow from
what arrives. Pure: `netem.measurement.endpoints` sends.

`plan_contention` plans what each member sends, and `judge_contention` compares what arrived with the channel's rule.
At the same time an idle member sends single datagrams (`pings`), as does a link that crosses another medium.

**Tolerances.** Sum of the rates: 2 %. Each share: 5 %, and Jain's index of the shares, each relative to the rule, at
least 0.98 (Jain, Chiu and Hawe, DEC-TR-301, 1984). Queue of an idle member: with ``fifo`` as in
`netem.measurement.judge`; otherwise at most a frame of each sender and one of its own link. Another medium: 0.5 ms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal, NamedTuple

from netem.measurement.judge import QUEUE_ABSOLUTE, QUEUE_RELATIVE, SCATTER, Judgement, judged
from netem.measurement.probe_plan import (
    JITTERS,
    LONGEST,
    MOST_DATAGRAMS,
    PROBE_BITS,
    PROBE_PAYLOAD,
    PROBE_SHARE,
    RTT_SAMPLES,
    USUAL_SPACING,
    Measurement,
    OneWay,
    ProbePlan,
    Saturation,
    largest_segment,
)
from netem.measurement.tally import UDP_HEADERS
from netem.measurement.tolerance import RTT_ABSOLUTE
from netem.media.allocation import Transfer, allocate, use_of
from netem.media.profile import ChannelProfile, Crossing, SharingRule
from netem.profile import ETHERNET, FULL_FRAME, LinkProfile

MOST_SENDERS = 4
SECONDS = 1.0
LONGEST_LOAD = 8.0  # s
PINGING = 0.5  # s of datagrams of an idle member, while the channel is full
FEWEST_PINGS = 10
PING = PROBE_BITS
ENOUGH = 100  # datagrams of the slowest member
OVERLOADS = (2.0, 1.5)  # the second one above half of MOST_DATAGRAMS
FULL = 0.99  # utilisation
SUM_RELATIVE = 0.02
SHARE_RELATIVE = 0.05
LEAST_FAIRNESS = 0.98
ISOLATION = 0.0005  # s
LATE = 0.05  # s after which a sender starts too late for the others

Channels = Mapping[str, ChannelProfile]


class Way(NamedTuple):
    """One direction of a link that crosses channels."""

    profile: LinkProfile
    crossings: Sequence[Crossing] = ()


@dataclass(frozen=True)
class Contention:
    """What members of a channel send together.

    rates    bit/s that each sender gets by the rule
    full     whether that fills the channel; else each gets what its own link or another channel allows
    filled   seconds after the start when the buffer is full
    spacing  seconds between the datagrams of an idle member, which are few enough not to be a load of their own
    frame    bytes of a packet of a sender
    corrupt  the highest fraction of packets that cross the channel and do not arrive
    """

    channel: str
    rates: Mapping[str, float]
    full: bool
    filled: float
    spacing: float
    frame: int
    corrupt: float
    saturations: Mapping[str, Saturation]


def alone(way: Way, channels: Channels) -> LinkProfile:
    """The profile of a link that is measured while nothing else crosses its channels: with the rate and the buffer of
    the slowest queue on its way. The others only add their time for a probe's datagram."""
    if not way.crossings:
        return way.profile
    queues = _queues(way, channels)
    rate, buffer = queues[0]
    added = sum(PING / other_rate for other_rate, _ in queues[1:])
    latency = way.profile.latency + added
    return replace(
        way.profile,
        rate=rate,
        buffer=None,
        buffer_bytes=buffer,
        latency=latency,
    )


def other_queues(way: Way, channels: Channels) -> list[tuple[float, float]]:
    """The queues on the way of a link but the slowest: bit/s, and the longest delay in s."""
    faster = _queues(way, channels)[1:]
    return [(rate, 8 * size / rate) for rate, size in faster]


def _queues(way: Way, channels: Channels) -> list[tuple[float, int]]:
    """The queues on the way of a link, the slowest first: bit/s and bytes."""
    queues: list[tuple[float, int]] = []
    if way.profile.rate is not None:
        queues.append((way.profile.rate, way.profile.buffer_limit or 0))
    for name, member in way.crossings:
        channel = channels[name]
        queues.append((channel.rate_of(member), round(channel.buffer_bytes)))
    return sorted(queues)


def senders(channel: str, ways: Mapping[str, Way], channels: Channels) -> list[str]:
    """The members that send: few, of different rates, and enough to fill the channel if possible. If there are more
    than two, one stays idle."""
    spread = _spread_by_rate(ways, channels[channel])
    most = len(ways)
    if most > 2:
        most -= 1
    few = min(MOST_SENDERS, most)
    limit = min(most, 3 * MOST_SENDERS)
    for number in range(few, limit + 1):
        chosen = spread[:number]
        rates = expected({name: ways[name] for name in chosen}, channels)
        if _load(channel, rates, channels) >= FULL:
            return chosen
    return spread[:few]


def _spread_by_rate(members: Iterable[str], channel: ChannelProfile) -> list[str]:
    """The members in an order in which different rates come first: one member of each rate, then the second of each,
    and so on."""
    groups: dict[float, list[str]] = {}
    for member in members:
        rate = channel.rate_of(member)
        groups.setdefault(rate, []).append(member)
    spread: list[str] = []
    for row in zip_longest(*groups.values()):
        spread += [member for member in row if member is not None]
    return spread


def expected(ways: Mapping[str, Way], channels: Channels) -> dict[str, float]:
    """The rates (bit/s) of members that send together, by the rules of all channels on their ways."""
    transfers = {name: _transfer(way, channels) for name, way in ways.items()}
    return allocate(transfers, dict.fromkeys(channels, 1.0))


def _transfer(way: Way, channels: Channels) -> Transfer:
    """A transfer that takes all it gets on the way of a link."""
    uses = {}
    for name, member in way.crossings:
        uses[name] = use_of(channels[name], member)
    if way.profile.rate is None:
        most = math.inf
    else:
        most = way.profile.rate
    return Transfer(uses, most)


def plan_contention(
    channel: str,
    ways: Mapping[str, Way],
    channels: Channels,
    *,
    mtu: int,
) -> Contention:
    """Plan what these members send. ``mtu``: the largest packet of the nodes in bytes."""
    shared = channels[channel]
    rates = expected(ways, channels)
    together = sum(rates.values())
    slowest = min(rates.values())
    tcp = together > MOST_DATAGRAMS
    overload = OVERLOADS[0]
    if tcp or overload * together > MOST_DATAGRAMS:
        overload = OVERLOADS[1]
    filled = 8 * shared.buffer_bytes / together / (overload - 1)
    largest = mtu + ETHERNET - UDP_HEADERS
    wanted = slowest * SECONDS / 8 / ENOUGH - UDP_HEADERS
    size = int(min(largest, max(60, wanted)))
    load_of_pings = 20 * PING / shared.rate
    four_frames = 4 * 8 * (size + UDP_HEADERS) / slowest
    spacing = max(USUAL_SPACING, load_of_pings, four_frames)
    pinging = max(PINGING, FEWEST_PINGS * spacing)
    jitter = max(way.profile.jitter for way in ways.values())
    longest = LONGEST if jitter else LONGEST_LOAD
    seconds = min(max(SECONDS, filled + pinging, JITTERS * jitter), longest)
    full = _load(channel, rates, channels) >= FULL
    if full and not tcp:
        queue = min(shared.buffer, (overload - 1) * seconds)
    else:
        queue = 0.0
    slowest_member = min(map(shared.rate_of, ways))
    drain = 8 * shared.buffer_bytes / slowest_member
    transport: Literal["udp", "tcp"] = "tcp" if tcp else "udp"
    saturations: dict[str, Saturation] = {}
    for name, way in ways.items():
        lost = min(way.profile.mean_loss, 0.5)
        link_rate = way.profile.rate or math.inf
        offer = min(overload * rates[name], 1.1 * link_rate) / (1 - lost)
        in_flight = rates[name] * way.profile.latency / 4
        in_buffer = 0.7 * shared.buffer_bytes / len(ways)
        saturations[name] = Saturation(
            transport=transport,
            offer=offer,
            seconds=seconds,
            size=largest_segment(way.profile) if tcp else size,
            window=int(in_flight + in_buffer),
            drain=drain,
            queue=queue,
            fills=True,
        )
    corrupt = max(way.profile.corrupt for way in ways.values())
    frame = FULL_FRAME if tcp else size + UDP_HEADERS
    return Contention(
        channel=channel,
        rates=rates,
        full=full,
        filled=filled,
        spacing=spacing,
        frame=frame,
        corrupt=corrupt,
        saturations=saturations,
    )


def sending(
    way: Way,
    back: LinkProfile,
    saturation: Saturation | None,
    start: float,
) -> ProbePlan:
    """The probe of a sender. Its saturation starts at ``start``."""
    latency = way.profile.latency + back.latency
    jitter = way.profile.jitter + back.jitter
    return ProbePlan(
        count=1,
        spacing=0.01,
        size=PROBE_PAYLOAD,
        wait=latency + 5 * jitter + 0.1,
        forward=saturation,
        back=None,
        start=start,
    )


def pings(
    plan: Contention,
    way: Way,
    back: LinkProfile,
    rate: float = math.inf,
) -> ProbePlan:
    """Single datagrams of an idle member, or of a link that crosses another medium; at most a tenth of its ``rate``."""
    spacing = max(plan.spacing, PING / (PROBE_SHARE * rate))
    count = max(FEWEST_PINGS, round(PINGING / spacing))
    return replace(sending(way, back, None, 0.0), count=count, spacing=spacing)


def judge_contention(
    plan: Contention,
    rule: SharingRule,
    measurements: Mapping[str, Measurement],
    pinged: float = 0.0,
) -> list[Judgement]:
    """Verdicts on the sum of what the senders got, and on what each got, if the rule promises shares.
    ``pinged``: bit/s that an idle member took from them."""
    configured = sum(plan.rates.values())
    rates: dict[str, float] = {}
    for name, measurement in measurements.items():
        rate = measurement.forward.loaded or measurement.forward.rate
        if rate is not None:
            rates[name] = rate
    late = max(measurement.late for measurement in measurements.values())
    missing = len(rates) < len(measurements)
    if late > LATE or missing:
        if late > LATE:
            why = f"a sender started {late:.2g} s late"
        else:
            why = "too little arrived"
        return [judged("rate", configured, None, 0.0, configured, why)]
    detail = f"{len(rates)} members together, in Mbit/s: {_listed(rates, plan, rule)}"
    together = None
    if not rule.own_queues:
        together = _together([measurement.forward for measurement in measurements.values()])
    if not together:
        together = sum(rates.values())
    unsure = _unsure(plan)
    tolerance = SUM_RELATIVE + unsure / len(rates)
    verdict = _judged("rate", configured, together, tolerance, detail, pinged)
    if together < verdict.low and not _filled(plan, measurements):
        return [replace(verdict, verdict="unknown", detail=f"{detail}; they did not fill the channel")]
    if not rule.own_queues:
        return [verdict]
    return [verdict, *_judge_shares(plan, rates, unsure, pinged)]


def _listed(rates: Mapping[str, float], plan: Contention, rule: SharingRule) -> str:
    """The measured rate of each member in Mbit/s, next to its share if the rule promises one."""
    parts = []
    for name, rate in sorted(rates.items()):
        part = f"{name} {rate / 1e6:.3g}"
        if rule.own_queues:
            part += f" of {plan.rates[name] / 1e6:.3g}"
        parts.append(part)
    return ", ".join(parts)


def _unsure(plan: Contention) -> float:
    """The fraction by which the rate of a sender may be off: by corrupt packets, and by one datagram in half of what it
    sends."""
    unsure = plan.corrupt
    for name, saturation in plan.saturations.items():
        if saturation.size:
            half = plan.rates[name] * saturation.seconds / 16 / (saturation.size + UDP_HEADERS)
            unsure = max(unsure, plan.corrupt + 1 / max(1.0, half))
    return unsure


def _judge_shares(
    plan: Contention,
    rates: Mapping[str, float],
    unsure: float,
    pinged: float,
) -> list[Judgement]:
    """Verdicts on the fairness of the shares and on the worst share."""
    parts = {name: rate / plan.rates[name] for name, rate in rates.items()}
    index = jain(parts.values())
    fairness = judged("fairness", 1.0, index, LEAST_FAIRNESS, 1.0, "Jain's index of the shares")
    worst = max(parts, key=lambda name: abs(parts[name] - 1))
    share = _judged(
        "share",
        configured=plan.rates[worst],
        measured=rates[worst],
        tolerance=SHARE_RELATIVE + unsure,
        detail=f"{worst}: the worst",
        less=pinged / len(rates),
    )
    return [fairness, share]


def judge_queue_of_idle(
    plan: Contention,
    profile: ChannelProfile,
    passes: int,
    quiet: Measurement,
    loaded: Measurement,
) -> Judgement:
    """By how much the round trip of an idle member grows, which crosses the channel ``passes`` times."""
    frames = sum(8 * plan.frame / profile.rate_of(name) for name in plan.rates)
    fifo = not profile.rule.own_queues
    if fifo:
        configured = passes * profile.buffer
        margin = max(QUEUE_ABSOLUTE, QUEUE_RELATIVE * configured)
    else:
        configured = passes * frames
        margin = RTT_ABSOLUTE + frames / len(plan.rates)
    tcp = any(saturation.transport == "tcp" for saturation in plan.saturations.values())
    if fifo and not tcp:
        low = max(0.0, configured - margin)
    else:
        low = 0.0
    return _growth("queue", configured, low, configured + margin, quiet, loaded)


def judge_isolation(jitter: float, quiet: Measurement, loaded: Measurement) -> Judgement:
    """By how much the round trip of a link of another medium changes. ``jitter``: of both directions (s)."""
    samples = min(quiet.rtt_samples, loaded.rtt_samples)
    most = ISOLATION + SCATTER * 1.25 * jitter * (2 / max(1, samples)) ** 0.5
    return _growth("isolation", 0.0, -most, most, quiet, loaded)


def _filled(plan: Contention, measurements: Mapping[str, Measurement]) -> bool:
    """Whether the senders certainly filled the channel: some of their datagrams waited for half of the buffer."""
    waited = max(measurement.forward.queue_delay or 0.0 for measurement in measurements.values())
    longest = max(saturation.queue for saturation in plan.saturations.values())
    return waited > 0 and waited >= longest / 2


def _together(ways: Sequence[OneWay]) -> float | None:
    """The bit/s of all datagrams that arrived, for shares that may change during the load: the channel was busy from
    the first to the last one. None for TCP."""
    firsts = []
    lasts = []
    for way in ways:
        if way.first is not None and way.last is not None:
            firsts.append(way.first)
            lasts.append(way.last)
    if not firsts:
        return None
    seconds = max(lasts) - min(firsts)
    if seconds > 0:
        return 8 * sum(way.bytes for way in ways) / seconds
    return None


def jain(values: Iterable[float]) -> float:
    """Jain's fairness index: 1 if all are equal, 1/n if one has everything."""
    shares = list(values)
    squares = sum(share**2 for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares)


def _growth(
    quantity: str,
    configured: float,
    low: float,
    high: float,
    quiet: Measurement,
    loaded: Measurement,
) -> Judgement:
    samples = min(quiet.rtt_samples, loaded.rtt_samples)
    before = quiet.rtt_median
    under_load = loaded.rtt_median
    if before is None or under_load is None or samples < RTT_SAMPLES or loaded.late > LATE:
        why = f"{samples} echoes, {loaded.late:.2g} s late"
        return judged(quantity, configured, None, low, high, why)
    growth = under_load - before
    idle = growth < low and quantity == "queue"
    if idle:
        detail = "the senders did not fill the buffer"
    else:
        detail = f"round trip {1000 * under_load:.4g} ms, {1000 * before:.4g} ms before"
    return judged(quantity, configured, growth, low, high, detail, unsure=idle)


def _judged(
    quantity: str,
    configured: float,
    measured: float,
    tolerance: float,
    detail: str,
    less: float,
) -> Judgement:
    low = configured * (1 - tolerance) - less
    high = configured * (1 + tolerance)
    return judged(quantity, configured, measured, low, high, detail)


def _load(channel: str, rates: Mapping[str, float], channels: Channels) -> float:
    """The utilisation of a channel."""
    shared = channels[channel]
    return sum(rate / shared.rate_of(name) for name, rate in rates.items())
