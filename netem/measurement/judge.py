"""Compare the measurement of a link with its profile: one verdict for each quantity and direction.

**Tolerances.** Round trip and delay: the larger of 1 ms and 2 % around the profile's prediction. Rate: 3 %. Queue: the
larger of 5 ms and 10 %. Fractions: the count must lie in the central 99 % of its exact binomial distribution under the
configured fraction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from statistics import mean, median, stdev
from typing import Literal, TypeVar

from netem.impair import Impairment
from netem.jitter import quantile
from netem.measurement.intervals import CONFIDENCE_Z, binomial_range, design_effect
from netem.measurement.probe_plan import (
    BURSTS,
    CLEAN_SAMPLES,
    EVENTS_TO_SEE,
    JITTERS,
    OVERLOAD,
    RTT_SAMPLES,
    Measurement,
    OneWay,
    ProbePlan,
    Saturation,
    lost_fraction,
)
from netem.measurement.tally import UDP_HEADERS
from netem.measurement.tolerance import RTT_ABSOLUTE, RTT_RELATIVE, WOULD_TAKE
from netem.profile import GilbertElliott, LinkProfile

RATE_RELATIVE = 0.03
QUEUE_ABSOLUTE = 0.005
QUEUE_RELATIVE = 0.1
SCATTER = 4.0  # standard deviations of the median, estimated from few trains
TRAINS = 16
ROUNDING = 1e-9

Verdict = Literal["pass", "fail", "unknown"]
T = TypeVar("T")
Train = list[tuple[float, float, float]]
"""When each probe was sent, turned, and came back (s)."""


@dataclass(frozen=True)
class Judgement:
    """One quantity, configured and measured: "pass" within [low, high], "fail" outside, "unknown" if data are
    insufficient. quantity is "rtt" or "delay" (s, one way), "loss", "duplicate", "reorder" (fractions), "burst"
    (packets), "rate" (bit/s) or "queue" (s, the queueing delay of a saturated link). ``expected``: what a link that is
    as configured shows in this measurement; of a delay, the latency with jitter and the time that a probe takes at the
    rate."""

    quantity: str
    asked: float
    measured: float | None
    low: float
    high: float
    verdict: Verdict
    detail: str
    expected: float


def judged(
    quantity: str,
    asked: float,
    measured: float | None,
    low: float,
    high: float,
    detail: str,
    *,
    unsure: bool = False,
    expected: float | None = None,
) -> Judgement:
    """The verdict on a measured quantity: "unknown" without a value, and if the data are ``unsure``. ``expected``: if
    it is not the configured value."""
    verdict: Verdict = "unknown"
    if measured is not None and not unsure:
        within = low <= measured <= high + ROUNDING
        verdict = "pass" if within else "fail"
    if expected is None:
        expected = asked
    return Judgement(
        quantity=quantity,
        asked=asked,
        measured=measured,
        low=low,
        high=high,
        verdict=verdict,
        detail=detail,
        expected=expected,
    )


def judge_direction(
    profile: LinkProfile,
    plan: ProbePlan,
    direction: OneWay,
    saturation: Saturation | None,
    others: Sequence[tuple[float, float]] = (),
    before: LinkProfile | None = None,
) -> list[Judgement]:
    """Verdicts on delay, loss and duplicates; on bursts if the profile has them; on order unless reordering is
    configured; on rate if there is one, and on the queue if datagrams saturated it. If the plan has too few probes for
    a fraction, its verdict says how long enough of them would take. ``others``: see `judge_queue`. ``before``: see
    `judge_delay`."""
    fractions = [judge_loss(profile, direction), judge_duplicates(profile, direction)]
    if isinstance(profile.loss, GilbertElliott):
        fractions.append(judge_bursts(profile.loss, direction))
    if not profile.reorder:
        fractions.append(judge_order(direction))
    verdicts = [judge_delay(profile, plan, direction, before)]
    for fraction in fractions:
        verdicts.append(_with_time(fraction, plan))
    if saturation is None:
        return verdicts
    verdicts.append(judge_rate(profile, direction, saturation))
    if saturation.transport == "udp":
        in_kernel = plan.rate_last
        queue = judge_queue(profile, direction, saturation, others, in_kernel=in_kernel)
        verdicts.append(queue)
    return verdicts


def _with_time(fraction: Judgement, plan: ProbePlan) -> Judgement:
    """The verdict on a fraction; an unknown one says how long enough probes would take, if the plan has too few."""
    if fraction.verdict != "unknown" or fraction.measured is None:
        return fraction
    if not plan.needed:
        return fraction
    seconds = plan.needed * plan.spacing
    hint = f"{plan.needed:,} probes {WOULD_TAKE} {seconds:.3g} s"
    return replace(fraction, detail=f"{fraction.detail}; {hint}")


def judge_rtt(
    forward: LinkProfile,
    back: LinkProfile,
    plan: ProbePlan,
    measurement: Measurement,
) -> Judgement:
    """Compare the median round trip with the link model's prediction for the same train, within a tolerance. Jitter
    shifts the median: probes closer together than the jitter wait for one another, and a finite train varies. Trains
    through netem.impair with several seeds predict both. `asked`: the configured sum of the latencies. `expected`: the
    prediction."""
    configured = forward.latency + back.latency
    predicted, deviation = predict_rtt(forward, back, plan)
    margin = max(RTT_ABSOLUTE, RTT_RELATIVE * configured) + SCATTER * deviation
    low = max(0.0, predicted - margin)
    high = predicted + margin
    measured = measurement.rtt_median
    samples = measurement.rtt_samples
    if measured is None:
        echoes = plan.count * (1 - lost_fraction(forward)) * (1 - lost_fraction(back))
        if echoes >= EVENTS_TO_SEE:
            detail = f"no echo of {plan.count} probes came back"
            return Judgement("rtt", configured, None, low, high, "fail", detail, predicted)
    unsure = measured is None or samples < RTT_SAMPLES
    if unsure:
        detail = f"{samples} echoes are too few"
    else:
        slowest = measurement.rtt_p99 or 0.0
        detail = f"median of {samples}, 99th percentile {1000 * slowest:.3g} ms"
    return judged(
        "rtt",
        configured,
        measured,
        low,
        high,
        detail,
        unsure=unsure,
        expected=predicted,
    )


def judge_delay(
    profile: LinkProfile,
    plan: ProbePlan,
    direction: OneWay,
    before: LinkProfile | None = None,
) -> Judgement:
    """Compare the median one-way delay, like `judge_rtt`. This detects a delay in the wrong direction. ``before``: the
    direction that the probes crossed first; its jitter brings them together, so that they queue in this one."""
    predicted, deviation = predict_delay(profile, plan, before)
    margin = max(RTT_ABSOLUTE, RTT_RELATIVE * profile.latency) + SCATTER * deviation
    low = max(0.0, predicted - margin)
    high = predicted + margin
    arrived = direction.received or 0
    unsure = direction.delay is None or arrived < RTT_SAMPLES
    detail = "too few arrived" if unsure else f"median of {direction.received}"
    return judged(
        "delay",
        profile.latency,
        direction.delay,
        low,
        high,
        detail,
        unsure=unsure,
        expected=predicted,
    )


def predict_rtt(forward: LinkProfile, back: LinkProfile, plan: ProbePlan) -> tuple[float, float]:
    """Mean and standard deviation of the median round trip of the plan's train, over trains with different seeds."""
    medians = []
    for train in _trains(forward, back, plan):
        round_trips = [returned - sent for sent, _, returned in train]
        medians.append(median(round_trips))
    return mean(medians), stdev(medians)


def predict_delay(
    profile: LinkProfile,
    plan: ProbePlan,
    before: LinkProfile | None = None,
) -> tuple[float, float]:
    """As `predict_rtt`, of one direction. ``before``: see `judge_delay`."""
    medians = []
    for train in _trains(before or LinkProfile(), profile, plan):
        delays = [returned - turned for _, turned, returned in train]
        medians.append(median(delays))
    return mean(medians), stdev(medians)


def _trains(forward: LinkProfile, back: LinkProfile, plan: ProbePlan) -> list[Train]:
    """Trains through both directions with different seeds."""
    random = forward.jitter or back.jitter or forward.reorder or back.reorder
    # Loss, corruption and duplication change the samples without moving the median.
    way_there = replace(forward, loss=0.0, corrupt=0.0, duplicate=0.0)
    way_back = replace(back, loss=0.0, corrupt=0.0, duplicate=0.0)
    size = plan.size + UDP_HEADERS
    count = min(plan.count, 500)
    trains = []
    for seed in range(TRAINS if random else 2):
        sending_times = [number * plan.spacing for number in range(count)]
        departures = [(sent, sent) for sent in sending_times]
        turns = _crossed(departures, way_there, seed, size, plan)
        echoes = [(turned, (sent, turned)) for turned, sent in turns]
        arrivals = _crossed(echoes, way_back, TRAINS + seed, size, plan)
        train = []
        for returned, (sent, turned) in arrivals:
            train.append((sent, turned, returned))
        trains.append(train)
    return trains


def _crossed(
    sent: Sequence[tuple[float, T]],
    way: LinkProfile,
    seed: int,
    size: int,
    plan: ProbePlan,
) -> list[tuple[float, T]]:
    """When packets that are sent in order arrive (s), each with its label; without those that find a buffer full, which
    jitter may have filled."""
    stages = [way]
    if plan.rate_last and way.rate is not None:
        delay = replace(way, rate=None, buffer=None, buffer_bytes=None)
        queue = LinkProfile(rate=way.rate, buffer_bytes=way.buffer_limit)
        stages = [delay, queue]
    packets = list(sent)
    for stage in stages:
        link = Impairment(stage, seed)
        arrivals = []
        for at, label in packets:
            for arrival, _ in link.offer(at, size):
                arrivals.append((arrival, label))
        arrivals.sort(key=itemgetter(0))
        packets = arrivals
    return packets


def judge_loss(profile: LinkProfile, direction: OneWay) -> Judgement:
    """Compare the lost probes, including corrupted ones, with the configured fraction. Losses of a Gilbert–Elliott
    chain are correlated, so a train contains less information about their number: its length is divided by the design
    effect (see `design_effect`) if that is above 1."""
    if direction.received is None:
        lost = None
    else:
        lost = direction.sent - direction.received
    configured = lost_fraction(profile)
    effect = design_effect(profile.loss)
    return _judge_fraction("loss", configured, lost, direction.sent, effect)


def judge_duplicates(profile: LinkProfile, direction: OneWay) -> Judgement:
    """Compare the fraction of duplicated probes among the received ones with the configured fraction."""
    received = direction.received or 0
    return _judge_fraction("duplicate", profile.duplicate, direction.duplicated, received)


def judge_order(direction: OneWay) -> Judgement:
    """Check that no probe arrives after a later one."""
    received = direction.received or 0
    return _judge_fraction("reorder", 0.0, direction.reordered, received)


def judge_bursts(chain: GilbertElliott, direction: OneWay) -> Judgement:
    """Compare the mean length of loss bursts with 1 / r, if all packets of the bad state are lost and no others. Burst
    lengths are then geometric, with standard deviation sqrt(1 - r) / r. The interval extends CONFIDENCE_Z standard
    errors to either side."""
    configured = chain.mean_burst
    bursts = direction.bursts
    if direction.received is None or bursts == 0:
        return judged("burst", configured, None, 0.0, math.inf, "no loss was seen")
    measured = (direction.sent - direction.received) / bursts
    margin = CONFIDENCE_Z * math.sqrt(1 - chain.r) / chain.r / math.sqrt(bursts)
    low = max(1.0, configured - margin)
    high = configured + margin
    geometric = chain.loss_good == 0.0 and chain.loss_bad == 1.0
    unsure = bursts < BURSTS or not geometric
    detail = f"{bursts} bursts"
    if unsure:
        detail += " are too few for a judgement"
    return judged("burst", configured, measured, low, high, detail, unsure=unsure)


def judge_rate(profile: LinkProfile, direction: OneWay, saturation: Saturation) -> Judgement:
    """Compare the rate of the saturated link with the configured one. ValueError if the profile has none.

    Corrupted datagrams use the rate but do not arrive. Too low a rate is "unknown" if the link may not have been full:
    with one TCP stream (see Saturation.fills), or if no queue built up because this host was too busy to send fast
    enough. A rate measured for less than JITTERS times the jitter is "unknown".
    """
    if profile.rate is None:
        raise ValueError("the profile asks for no rate")
    configured = profile.rate
    low = (1 - RATE_RELATIVE) * configured
    high = (1 + RATE_RELATIVE) * configured
    if direction.rate is None:
        return judged("rate", configured, None, low, high, "too little arrived")
    transport = saturation.transport
    if transport == "tcp":
        measured = direction.rate
    else:
        measured = direction.rate / (1 - profile.corrupt)
    queue_delay = direction.queue_delay or 0.0
    full = saturation.fills and queue_delay >= saturation.queue / 2
    idle = measured < low and not full
    enough = JITTERS * profile.jitter
    short = saturation.seconds < enough
    detail = f"{transport} for {saturation.seconds:.3g} s"
    if idle:
        detail = f"{transport} did not fill the link"
    elif short:
        detail += f" is too short for so much jitter; enough {WOULD_TAKE} {enough:.3g} s"
    unsure = idle or short
    return judged("rate", configured, measured, low, high, detail, unsure=unsure)


def judge_queue(
    profile: LinkProfile,
    direction: OneWay,
    saturation: Saturation,
    others: Sequence[tuple[float, float]] = (),
    *,
    in_kernel: bool = False,
) -> Judgement:
    """Compare the queueing delay at the end of a saturation with the buffer's time at the rate, or the part of it that
    the saturation fills. The measured one is that of the slowest datagram against the fastest, so the range of the
    jitter of all datagrams may come on top. So may the delay of the ``others``, the queues on the way that are faster
    (bit/s, and the longest delay in s) but slower than what the saturation offers. ``in_kernel``: the buffer comes
    before the losses (`netem.kernel.police`), so what chance does not lose waits as well."""
    configured = saturation.queue
    measured = direction.queue_delay
    margin = max(QUEUE_ABSOLUTE, QUEUE_RELATIVE * configured)
    low = max(0.0, configured - margin - profile.jitter)
    high = configured + margin + _jitter_range(profile, saturation)
    high += _delay_of_others(others, saturation)
    if in_kernel:
        high += (configured + saturation.seconds) * _spared(profile, saturation)
    if measured is None:
        return judged("queue", configured, None, low, high, "too little arrived")
    empty = measured < low
    detail = f"{OVERLOAD:g} times the rate for {saturation.seconds:.3g} s"
    if empty:
        detail += " did not fill the link"
    return judged("queue", configured, measured, low, high, detail, unsure=empty)


def _delay_of_others(others: Sequence[tuple[float, float]], saturation: Saturation) -> float:
    """Seconds that a saturation may wait in faster queues of the way."""
    delays = []
    for rate, longest in others:
        excess = max(0.0, saturation.offer / rate - 1)
        delays.append(min(longest, excess * saturation.seconds))
    return sum(delays)


def _spared(profile: LinkProfile, saturation: Saturation) -> float:
    """How many more datagrams of a saturation than configured may cross a link by chance: a fraction of those that it
    should not lose."""
    loss = profile.mean_loss
    if not loss:
        return 0.0
    independent = max(1, round(_datagrams(saturation) / design_effect(profile.loss)))
    fewest, _ = binomial_range(independent, loss)
    return (loss - fewest / independent) / (1 - min(loss, 0.5))


def _jitter_range(profile: LinkProfile, saturation: Saturation) -> float:
    """Seconds by which the jitter of two datagrams of a saturation differs at most, but for one saturation of 500."""
    rare = 0.001 / max(1.0, _datagrams(saturation))
    highest = quantile(profile.distribution, 1 - rare)
    lowest = quantile(profile.distribution, rare)
    return profile.jitter * (highest - lowest)


def _datagrams(saturation: Saturation) -> float:
    """About how many datagrams a saturation sends."""
    frame = 8 * (saturation.size + UDP_HEADERS)
    return saturation.offer * saturation.seconds / frame


def _judge_fraction(
    quantity: str,
    configured: float,
    count: int | None,
    number: int,
    effect: float = 1.0,
) -> Judgement:
    independent = round(number / max(1.0, effect))
    if count is None or independent == 0:
        return judged(quantity, configured, None, 0.0, 1.0, "no packet from the far end arrived")
    lowest, highest = binomial_range(independent, configured)
    low = lowest / independent
    high = highest / independent
    detail = f"{count} of {number}"
    verdict = judged(quantity, configured, count / number, low, high, detail)
    if configured:
        too_few = lowest == 0
    else:
        too_few = number < CLEAN_SAMPLES
    if verdict.verdict == "pass" and too_few:
        return replace(verdict, verdict="unknown", detail=f"{detail}: too few probes to detect it")
    return verdict
