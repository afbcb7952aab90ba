"""What to send to measure a link, and the form of the results.

`plan_probe` plans the packets, `netem.measurement.endpoints` sends them, `Measurement.from_mapping` reads the result
and `netem.measurement.judge` compares it with the profile. "forward" is from the probe to the responder.

**Bytes.** A rate counts Ethernet frames without preamble and checksum, as the profile does. A datagram of n bytes is a
frame of n + 42; a TCP segment of 1448 bytes (with timestamps) one of 1514, so a link of 100 Mbit/s carries 95.6
Mbit/s of TCP payload. `netem.measurement.endpoints` documents how datagrams and streams are timed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from netem.errors import MeasureError
from netem.measurement.intervals import design_effect
from netem.measurement.tally import UDP_HEADERS
from netem.profile import ETHERNET, LARGEST_MTU, GilbertElliott, LinkProfile

PROBE_PAYLOAD = 40
PROBE_BITS = 8 * (PROBE_PAYLOAD + UDP_HEADERS)
USUAL_SPACING = 0.002  # s
STEADY_SPACING = 0.001  # s, without jitter and reordering
SHORTEST_SPACING = 0.0005  # s
PROBE_SHARE = 0.1  # of the rate, for the train, so that the train does not queue
SLOW_SHARE = 0.4  # of a rate so low that the train would take too long; both directions fit in one half-duplex channel
LONGEST_ANSWER = 400  # bytes of a frame with the responder's results
OVERLOAD = 1.5
MOST_DATAGRAMS = 100e6  # bit/s; above it only segmentation offload, hence TCP, fills the link
TCP_IPV4_HEADERS = 40  # bytes, without options, which TCP counts as part of a segment
TCP_WINDOW = 2e6  # bytes, minimum in flight of a stream with Linux's default tcp_wmem of 4 MiB, half of it overhead

RTT_SAMPLES = 5
JITTERS = 100  # length of a saturation: its rate then has a standard deviation of 0.5 %, by netem.impair
REAL_WAIT = 1.0  # s for the last echo of a real link: its latency is unknown
LONGEST = 20.0  # s, limit of that length; with a jitter above LONGEST / JITTERS the rate is unknown
LONGEST_TRAIN = 60.0  # s, for a slow link
EVENTS_TO_SEE = 6.0  # expected number: exp(-6) < (1 - CONFIDENCE) / 2, so that zero events contradict
CLEAN_SAMPLES = 50  # probes without an event that say that there are none: of 10 % they would show one, at 99 %
BURSTS = 20  # of losses that suffice to judge their mean length


@dataclass(frozen=True)
class Saturation:
    """How to fill one direction for `seconds`: `offer` bit/s of datagrams with `size` payload bytes, or a TCP stream.

    size    of a TCP stream: the largest segment, 0 for that of the route
    offer   0 for a real link: as much as TCP gets
    window  maximum bytes of a TCP stream in flight: enough to fill the link and most of its buffer, so that the stream
            never causes losses that slow it down
    drain   seconds after the saturation until its queue is empty again
    queue   seconds by which the queue delays the last datagrams if the link is no faster than configured; 0 for TCP
    fills   whether the link is certainly full: one TCP stream fills neither a lossy link nor one that holds more than
            its window
    """

    transport: Literal["udp", "tcp"]
    offer: float
    seconds: float
    size: int
    window: int
    drain: float
    queue: float
    fills: bool


@dataclass(frozen=True, kw_only=True)
class ProbePlan:
    """What to send: a train of `count` datagrams of `size` payload bytes every `spacing` seconds, then saturations.

    wait   seconds to wait for the last echo, or for an answer. A direction without a rate has no saturation.
    needed number of probes that suffice to judge every fraction of the profiles, if that is more than `count`
    rate_last  whether the links have their rate after their delay, as those of the kernel engine do, and not before it
    start  when the saturations begin, or without any the train, on the clock of time.time(); 0: as soon as possible
    """

    count: int
    spacing: float
    size: int
    wait: float
    forward: Saturation | None
    back: Saturation | None
    start: float = 0.0
    needed: int = 0
    rate_last: bool = False

    @property
    def seconds(self) -> float:
        """About how long the measurement takes."""
        saturations = 0.0
        for saturation in (self.forward, self.back):
            if saturation is not None:
                saturations += saturation.seconds + saturation.drain
        return self.count * self.spacing + 2 * self.wait + saturations


@dataclass(frozen=True, kw_only=True)
class OneWay:
    """Results of one direction, from the train and the saturation.

    sent, received      different numbers; received is None if the responder did not answer
    bursts              unbroken runs of lost numbers
    duplicated, reordered   arrivals, see netem.measurement.tally.train_counts
    delay               median one-way delay of the train's datagrams in seconds
    rate                bit/s on the link while saturated
    loaded              bit/s of the datagrams that arrived while others were still being sent
    queue_delay         seconds, delay of the slowest datagram of the saturation minus that of the fastest
    bytes, first, last  of the datagrams of the saturation: what arrived, and when the first and the last one did
    """

    sent: int
    received: int | None
    bursts: int = 0
    duplicated: int = 0
    reordered: int = 0
    delay: float | None = None
    rate: float | None = None
    queue_delay: float | None = None
    loaded: float | None = None
    bytes: int = 0
    first: float | None = None
    last: float | None = None


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The probe's results; times in seconds. rtt_median and rtt_p99 are None if no echo arrived. late: how long after
    `ProbePlan.start` the probe was ready."""

    rtt_median: float | None
    rtt_p99: float | None
    rtt_samples: int
    forward: OneWay
    back: OneWay
    late: float = 0.0

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Parse the probe's output. MeasureError if it has another form."""
        try:
            fields = dict(mapping)
            fields["forward"] = OneWay(**mapping["forward"])
            fields["back"] = OneWay(**mapping["back"])
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise MeasureError(
                f"not the output of a probe: {error}; run `python -m netem.measurement.endpoints probe`"
            ) from error


def plan_probe(
    forward: LinkProfile,
    back: LinkProfile,
    *,
    quick: bool = True,
    mtu: int = LARGEST_MTU,
    longest: float | None = None,
    rate_last: bool = False,
) -> ProbePlan:
    """Plan the measurement of a link with these profiles.

    quick: 1 to 2 s for a link of 1 Mbit/s or more, for a check before each run; a small loss, which needs many probes,
    adds up to 1.5 s. Otherwise 5 to 10 s, and up to 15 s more for a small loss. In both cases slow links take longer,
    because a train may use a tenth of the rate; if that takes too long, SLOW_SHARE of it, for at most LONGEST_TRAIN.
    So do links with much jitter, because a rate needs a saturation much longer than the jitter: JITTERS times the
    jitter for each direction, at most LONGEST. A real link takes 3 s more, or 13 s. mtu: the largest packet of the
    nodes in bytes; a larger datagram would be two frames. No packet is larger than `drop_above` of its link. longest:
    seconds of the train, and of the saturation of a link with jitter, instead of these limits. rate_last: see
    `ProbePlan`.
    """
    seconds = 0.2 if quick else 2.0
    needed = _needed(forward, back)
    count, spacing = _train(forward, back, quick, longest)
    latency = forward.latency + back.latency
    jitter = forward.jitter + back.jitter
    exchange = PROBE_BITS + 8 * LONGEST_ANSWER
    wait = latency + 5 * jitter + exchange / _slowest(forward, back) + 0.05
    if forward.real or back.real:
        wait += REAL_WAIT
    return ProbePlan(
        count=count,
        spacing=spacing,
        size=PROBE_PAYLOAD,
        wait=wait,
        forward=_plan_saturation(forward, seconds, latency, mtu, longest),
        back=_plan_saturation(back, seconds, latency, mtu, longest),
        needed=needed if needed > count else 0,
        rate_last=rate_last,
    )


def _slowest(forward: LinkProfile, back: LinkProfile) -> float:
    """The lower rate of both directions in bit/s; infinite if neither has one."""
    return min(forward.rate or math.inf, back.rate or math.inf)


def _train(
    forward: LinkProfile,
    back: LinkProfile,
    quick: bool,
    longest: float | None,
) -> tuple[int, float]:
    """The number of probes, and the seconds between two of them."""
    if quick:
        usual = 0.5
        most = 2.0
    else:
        usual = 4.0
        most = 20.0
    slowest = _slowest(forward, back)
    share = PROBE_SHARE * slowest
    needed = _needed(forward, back)
    wanted = max(usual / USUAL_SPACING, needed)
    disorder = forward.jitter or forward.reorder or back.jitter or back.reorder
    steady = not disorder
    pace = min(usual / wanted, STEADY_SPACING if steady else USUAL_SPACING)
    spacing = max(SHORTEST_SPACING, pace, PROBE_BITS / share)
    if needed * PROBE_BITS / share > most:
        spacing = _slow_spacing(forward, PROBE_BITS / slowest, steady=steady)
        duration = min(needed * spacing, longest or LONGEST_TRAIN)
    else:
        shortest = min(wanted * spacing, usual)
        duration = max(shortest, min(needed * spacing, longest or most))
    count = max(2 * RTT_SAMPLES, round(duration / spacing))
    return count, spacing


def _slow_spacing(forward: LinkProfile, frame: float, *, steady: bool) -> float:
    """Seconds between two probes of a slow link, on which one takes ``frame`` seconds. Without jitter, each echo starts
    in the middle between two probes: both directions may share a half-duplex channel."""
    least = frame / SLOW_SHARE
    echo = frame + forward.latency
    between = math.floor(echo / least - 0.5)
    if steady and between >= 0:
        return echo / (between + 0.5)
    return least


def _needed(forward: LinkProfile, back: LinkProfile) -> int:
    """Number of probes that suffice to judge every fraction of both directions. Of those that are echoed, some are lost
    in the other direction."""
    arriving = 1.0
    for profile in (forward, back):
        arriving *= 1 - min(lost_fraction(profile), 0.5)
    clean = CLEAN_SAMPLES + 3 * math.sqrt(CLEAN_SAMPLES * (1 - arriving))
    arrivals = max(clean, _probes_to_see(forward), _probes_to_see(back))
    return math.ceil(arrivals / arriving)


def _probes_to_see(profile: LinkProfile) -> float:
    """Number of arriving probes that suffice to detect a link without the smallest configured fraction, and to judge
    the length of its bursts."""
    fractions = (lost_fraction(profile), profile.duplicate)
    configured = [fraction for fraction in fractions if fraction]
    seen = 0.0
    if configured:
        seen = EVENTS_TO_SEE / min(configured) * design_effect(profile.loss)
    if not isinstance(profile.loss, GilbertElliott) or not profile.loss.p:
        return seen
    bursts = (1 - profile.loss.bad_fraction) * profile.loss.p
    return max(seen, 1.5 * BURSTS / bursts)


def lost_fraction(profile: LinkProfile) -> float:
    """Fraction of probes that do not arrive. Corrupted ones count as lost, because their checksum is wrong."""
    return profile.mean_loss + profile.corrupt - profile.mean_loss * profile.corrupt


def largest_segment(profile: LinkProfile) -> int:
    """Bytes of the largest TCP segment that a link lets through; 0 if it lets all through."""
    if profile.drop_above is None:
        return 0
    return profile.drop_above - TCP_IPV4_HEADERS


def _plan_saturation(
    profile: LinkProfile,
    seconds: float,
    latency: float,
    mtu: int,
    longest: float | None,
) -> Saturation | None:
    """Datagrams if this host can send enough of them: unlike TCP they fill a link immediately and despite losses. A TCP
    stream on a real link, because its rate is unknown."""
    if profile.real:
        return _plan_stream(0.0, max(3 * seconds, 1.0), TCP_WINDOW, fills=False)
    rate = profile.rate
    buffer = profile.buffer_limit
    if rate is None or buffer is None:
        return None
    steady = min(JITTERS * profile.jitter, longest or LONGEST)
    if rate > MOST_DATAGRAMS:
        in_flight = rate * latency / 8
        fills = not profile.needs_packet_truth and in_flight < TCP_WINDOW
        seconds = max(3 * seconds, 1.0, 30 * latency, steady)
        window = in_flight + 0.7 * buffer
        return _plan_stream(rate, seconds, window, largest_segment(profile), fills=fills)
    seconds = max(seconds, steady)
    # On a slow link: smaller datagrams, and more time if needed, so that about 20 of them arrive.
    largest = min(mtu, profile.drop_above or mtu) + ETHERNET - UDP_HEADERS
    twentieth = rate * seconds / 8 / 20 - UDP_HEADERS
    size = int(min(largest, max(60, twentieth)))
    seconds = max(seconds, 20 * 8 * (size + UDP_HEADERS) / rate)
    offer = OVERLOAD * rate / (1 - min(profile.mean_loss, 0.5))
    queue = min(8 * buffer / rate, (OVERLOAD - 1) * seconds)
    return Saturation(
        transport="udp",
        offer=offer,
        seconds=seconds,
        size=size,
        window=0,
        drain=queue,
        queue=queue,
        fills=True,
    )


def _plan_stream(
    offer: float,
    seconds: float,
    window: float,
    segment: int = 0,
    *,
    fills: bool,
) -> Saturation:
    return Saturation(
        transport="tcp",
        offer=offer,
        seconds=seconds,
        size=segment,
        window=int(window),
        drain=0.0,
        queue=0.0,
        fills=fills,
    )
