"""The probe of a channel of a shared medium: some members send together for about a second, and all follows from
what arrives. Pure: `netem.measurement.probe` sends.

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
from typing import Literal, NamedTuple

from netem.measurement.judge import QUEUE_ABSOLUTE, QUEUE_RELATIVE, RTT_ABSOLUTE, SCATTER, Judgement, judged
from netem.measurement.measure import (
    JITTERS,
    LONGEST,
    MOST_DATAGRAMS,
    PROBE_PAYLOAD,
    PROBE_SHARE,
    RTT_SAMPLES,
    USUAL_SPACING,
    Measurement,
    OneWay,
    ProbePlan,
    Saturation,
)
from netem.measurement.tally import UDP_HEADERS
from netem.media.allocation import Transfer, allocate, use_of
from netem.media.profile import ChannelProfile, Crossing, SharingRule
from netem.profile import FULL_FRAME, LinkProfile
from netem.userspace.frame import ETHERNET

MOST_SENDERS = 4
SECONDS, LONGEST_LOAD = 1.0, 8.0  # s
PINGING, FEWEST_PINGS = 0.5, 10  # s of datagrams of an idle member, while the channel is full
PING = 8 * (PROBE_PAYLOAD + UDP_HEADERS)  # bits
ENOUGH = 100  # datagrams of the slowest member
OVERLOADS = (2.0, 1.5)  # the second one above half of MOST_DATAGRAMS
FULL = 0.99  # utilisation
SUM_RELATIVE = 0.02
SHARE_RELATIVE = 0.05
LEAST_FAIRNESS = 0.98
ISOLATION = 0.0005  # s
LATE = 0.05  # s after which a sender begins too late for the others

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
    slowest, *others = _queues(way, channels)
    added = sum(8 * (PROBE_PAYLOAD + UDP_HEADERS) / rate for rate, _ in others)
    latency = way.profile.latency + added
    return replace(way.profile, rate=slowest[0], buffer=None, buffer_bytes=slowest[1], latency=latency)


def other_queues(way: Way, channels: Channels) -> list[tuple[float, float]]:
    """The queues on the way of a link but the slowest: bit/s, and the longest delay in s."""
    return [(rate, 8 * size / rate) for rate, size in _queues(way, channels)[1:]]


def _queues(way: Way, channels: Channels) -> list[tuple[float, int]]:
    """The queues on the way of a link, the slowest first: bit/s and bytes."""
    if way.profile.rate is None:
        queues = []
    else:
        queues = [(way.profile.rate, way.profile.buffer_limit or 0)]
    queues += [(channels[name].rate_of(member), round(channels[name].buffer_bytes)) for name, member in way.crossings]
    return sorted(queues)


def senders(channel: str, ways: Mapping[str, Way], channels: Channels) -> list[str]:
    """The members that send: few, of different rates, and enough to fill the channel if possible. If there are more
    than two, one stays idle."""
    groups: dict[float, list[str]] = {}
    for member in ways:
        groups.setdefault(channels[channel].rate_of(member), []).append(member)
    spread = [of[place] for place in range(len(ways)) for of in groups.values() if place < len(of)]
    most = len(ways) - (len(ways) > 2)
    few = min(MOST_SENDERS, most)
    for number in range(few, min(most, 3 * MOST_SENDERS) + 1):
        if _load(channel, expected({name: ways[name] for name in spread[:number]}, channels), channels) >= FULL:
            return spread[:number]
    return spread[:few]


def expected(ways: Mapping[str, Way], channels: Channels) -> dict[str, float]:
    """The rates (bit/s) of members that send together, by the rules of all channels on their ways."""
    transfers = {
        name: Transfer(
            {crossing.channel: use_of(channels[crossing.channel], crossing.member) for crossing in way.crossings},
            math.inf if way.profile.rate is None else way.profile.rate,
        )
        for name, way in ways.items()
    }
    return allocate(transfers, dict.fromkeys(channels, 1.0))


def plan_contention(channel: str, ways: Mapping[str, Way], channels: Channels, *, mtu: int) -> Contention:
    """Plan what these members send. ``mtu``: the largest packet of the nodes in bytes."""
    shared = channels[channel]
    rates = expected(ways, channels)
    together = sum(rates.values())
    slowest = min(rates.values())
    tcp = together > MOST_DATAGRAMS
    overload = OVERLOADS[tcp or OVERLOADS[0] * together > MOST_DATAGRAMS]
    filled = 8 * shared.buffer_bytes / together / (overload - 1)
    size = int(min(mtu + ETHERNET - UDP_HEADERS, max(60, slowest * SECONDS / 8 / ENOUGH - UDP_HEADERS)))
    spacing = max(USUAL_SPACING, 20 * PING / shared.rate, 4 * 8 * (size + UDP_HEADERS) / slowest)
    pinging = max(PINGING, FEWEST_PINGS * spacing)
    jitter = max(way.profile.jitter for way in ways.values())
    seconds = min(max(SECONDS, filled + pinging, JITTERS * jitter), LONGEST if jitter else LONGEST_LOAD)
    full = _load(channel, rates, channels) >= FULL
    saturations: dict[str, Saturation] = {}
    transport: Literal["udp", "tcp"] = "tcp" if tcp else "udp"
    for name, way in ways.items():
        lost = min(way.profile.mean_loss, 0.5)
        offer = min(overload * rates[name], 1.1 * (way.profile.rate or math.inf)) / (1 - lost)
        window = int(rates[name] * way.profile.latency / 4 + 0.7 * shared.buffer_bytes / len(ways))
        saturations[name] = Saturation(
            *(transport, offer, seconds),
            size=0 if tcp else size,
            window=window,
            drain=8 * shared.buffer_bytes / min(map(shared.rate_of, ways)),
            queue=min(shared.buffer, (overload - 1) * seconds) if full and not tcp else 0.0,
            fills=True,
        )
    corrupt = max(way.profile.corrupt for way in ways.values())
    frame = FULL_FRAME if tcp else size + UDP_HEADERS
    return Contention(channel, rates, full, filled, spacing, frame, corrupt, saturations)


def sending(way: Way, back: LinkProfile, saturation: Saturation | None, start: float) -> ProbePlan:
    """The probe of a sender, whose saturation begins at ``start``."""
    wait = way.profile.latency + back.latency + 5 * (way.profile.jitter + back.jitter) + 0.1
    return ProbePlan(count=1, spacing=0.01, size=PROBE_PAYLOAD, wait=wait, forward=saturation, back=None, start=start)


def pings(plan: Contention, way: Way, back: LinkProfile, rate: float = math.inf) -> ProbePlan:
    """Single datagrams of an idle member, or of a link that crosses another medium; at most a tenth of its ``rate``."""
    spacing = max(plan.spacing, PING / (PROBE_SHARE * rate))
    count = max(FEWEST_PINGS, round(PINGING / spacing))
    return replace(sending(way, back, None, 0.0), count=count, spacing=spacing)


def judge_contention(
    plan: Contention, rule: SharingRule, found: Mapping[str, Measurement], pinged: float = 0.0
) -> list[Judgement]:
    """Verdicts on the sum of what the senders got, and on what each got, if the rule promises shares.
    ``pinged``: bit/s that an idle member took from them."""
    configured = sum(plan.rates.values())
    rates = {name: each.forward.loaded or each.forward.rate for name, each in found.items()}
    got = {name: rate for name, rate in rates.items() if rate is not None}
    unsure = plan.corrupt
    for name, saturation in plan.saturations.items():
        if saturation.size:
            half = plan.rates[name] * saturation.seconds / 16 / (saturation.size + UDP_HEADERS)
            unsure = max(unsure, plan.corrupt + 1 / max(1.0, half))
    late = max(each.late for each in found.values())
    if late > LATE or len(got) < len(rates):
        why = f"a sender started {late:.2g} s late" if late > LATE else "too little arrived"
        return [judged("rate", configured, None, 0.0, configured, why)]
    of = {name: f" of {rate / 1e6:.3g}" if rule.own_queues else "" for name, rate in plan.rates.items()}
    listed = ", ".join(f"{name} {rate / 1e6:.3g}{of[name]}" for name, rate in sorted(got.items()))
    detail = f"{len(got)} members together, in Mbit/s: {listed}"
    together = (None if rule.own_queues else _together([each.forward for each in found.values()])) or sum(got.values())
    figures = [_judged("rate", configured, together, SUM_RELATIVE + unsure / len(got), detail, pinged)]
    if together < figures[0].low and not _filled(plan, found):
        return [replace(figures[0], verdict="unknown", detail=f"{detail}; they did not fill the channel")]
    if rule.own_queues:
        parts = {name: rate / plan.rates[name] for name, rate in got.items()}
        index = jain(parts.values())
        worst = max(parts, key=lambda name: abs(parts[name] - 1))
        figures.append(judged("fairness", 1.0, index, LEAST_FAIRNESS, 1.0, "Jain's index of the shares"))
        less = pinged / len(got)
        detail = f"{worst}: the worst"
        figures.append(_judged("share", plan.rates[worst], got[worst], SHARE_RELATIVE + unsure, detail, less))
    return figures


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
    configured = passes * (profile.buffer if fifo else frames)
    if fifo:
        margin = max(QUEUE_ABSOLUTE, QUEUE_RELATIVE * configured)
    else:
        margin = RTT_ABSOLUTE + frames / len(plan.rates)
    tcp = any(each.transport == "tcp" for each in plan.saturations.values())
    if fifo and not tcp:
        low = max(0.0, configured - margin)
    else:
        low = 0.0
    return _growth("queue", configured, low, configured + margin, quiet, loaded)


def judge_isolation(jitter: float, quiet: Measurement, loaded: Measurement) -> Judgement:
    """By how much the round trip of a link of another medium changes. ``jitter``: of both directions (s)."""
    most = ISOLATION + SCATTER * 1.25 * jitter * (2 / max(1, min(quiet.rtt_samples, loaded.rtt_samples))) ** 0.5
    return _growth("isolation", 0.0, -most, most, quiet, loaded)


def _filled(plan: Contention, found: Mapping[str, Measurement]) -> bool:
    """Whether the senders certainly filled the channel: some of their datagrams waited for half of the buffer."""
    waited = max(each.forward.queue_delay or 0.0 for each in found.values())
    return waited > 0 and waited >= max(each.queue for each in plan.saturations.values()) / 2


def _together(ways: Sequence[OneWay]) -> float | None:
    """The bit/s of all datagrams that arrived, for shares that may change meanwhile: the channel was busy from the
    first to the last one. None for TCP."""
    spans = [(way.first, way.last) for way in ways if way.first is not None and way.last is not None]
    if spans:
        seconds = max(last for _, last in spans) - min(first for first, _ in spans)
    else:
        seconds = 0.0
    if seconds > 0:
        return 8 * sum(way.bytes for way in ways) / seconds
    return None


def jain(values: Iterable[float]) -> float:
    """Jain's fairness index: 1 if all are equal, 1/n if one has everything."""
    listed = list(values)
    return sum(listed) ** 2 / (len(listed) * sum(value**2 for value in listed))


def _growth(
    quantity: str,
    configured: float,
    low: float,
    high: float,
    quiet: Measurement,
    loaded: Measurement,
) -> Judgement:
    samples = min(quiet.rtt_samples, loaded.rtt_samples)
    if quiet.rtt_median is None or loaded.rtt_median is None or samples < RTT_SAMPLES or loaded.late > LATE:
        return judged(quantity, configured, None, low, high, f"{samples} echoes, {loaded.late:.2g} s late")
    grown = loaded.rtt_median - quiet.rtt_median
    idle = grown < low and quantity == "queue"
    if idle:
        detail = "the senders did not fill the buffer"
    else:
        detail = f"round trip {1000 * loaded.rtt_median:.4g} ms, {1000 * quiet.rtt_median:.4g} ms before"
    return judged(quantity, configured, grown, low, high, detail, unsure=idle)


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
    return sum(rate / channels[channel].rate_of(name) for name, rate in rates.items())
