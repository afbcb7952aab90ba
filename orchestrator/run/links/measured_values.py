"""The measured values of the link between two nodes, from a probe: emulated directions are judged against their
profiles, real ones are only measured. Pure.

A round trip is judged if both directions are emulated. If one is real, the delay of the network between the hosts is
taken from the round trip, and the other direction is judged by the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from netem.measurement.judge import Judgement, judge_delay, judge_direction, judge_rtt
from netem.measurement.probe_plan import Measurement, OneWay, ProbePlan, Saturation
from netem.profile import LinkProfile
from orchestrator.planning.plan import LinkPlan, NodePlan
from orchestrator.record.events.overload import load_remark
from orchestrator.results.checks.verdicts import Verdict

Queues = Sequence[tuple[float, float]]
"""The bit/s of queues, and their longest delays in s."""


@dataclass(frozen=True)
class ProbedPair:
    """Two nodes and the link between them, in both directions, as it is alone on the channels that it crosses.
    ``shared``: what distinguishes these channels, for `kind`. ``others``: the queues that each direction crosses
    in addition to its own, see `netem.measurement.judge.judge_queue`."""

    source: NodePlan
    target: NodePlan
    forward: LinkPlan
    back: LinkPlan
    shared: tuple[object, ...] = ()
    others: tuple[Queues, Queues] = ((), ())

    @property
    def kind(self) -> tuple[object, ...]:
        """Equal for links that one measurement stands for. Each two hosts have a network of their own."""
        hosts = frozenset[str]()
        if self.real:
            hosts = frozenset({self.source.host, self.target.host})
        return (
            self.forward.link_class,
            self.forward.profile,
            self.back.profile,
            self.forward.mtu,
            hosts,
            self.shared,
        )

    @property
    def places(self) -> set[str]:
        """The nodes and the channels that a measurement loads."""
        crossings = (*self.forward.crossings, *self.back.crossings)
        channels = [crossing.channel for crossing in crossings]
        return {self.source.name, self.target.name, *channels}

    @property
    def real(self) -> bool:
        """Whether a direction is real."""
        return self.forward.profile.real or self.back.profile.real


@dataclass(frozen=True)
class MeasuredValue:
    """A quantity of a direction, as a `Judgement` has it; the verdict on a real link is "measured". `expected` is None
    of what was not judged. ``busy``, ``saturated``: see `orchestrator.record.rows.ProbeResult`."""

    quantity: str
    asked: float | None
    measured: float | None
    low: float | None
    high: float | None
    verdict: Verdict
    detail: str
    expected: float | None = None
    busy: float | None = None
    saturated: bool | None = None

    @classmethod
    def judged(cls, judgement: Judgement) -> Self:
        return cls(**vars(judgement))

    def on_host(self, *, saturated: bool, share: float) -> Self:
        """The value with the load of this host. One that is not as configured also names it. ``share``: of the time
        of its processors; 0 if not known."""
        busy = share or None
        detail = self.detail
        remark = load_remark(saturated=saturated, busy=busy)
        if self.verdict == "fail" and remark:
            detail = f"{detail}; {remark}"
        return replace(self, detail=detail, busy=busy, saturated=saturated)

    @classmethod
    def only_measured(cls, quantity: str, measured: float | None, detail: str) -> Self:
        """Unknown if the measurement gave nothing."""
        verdict: Verdict = "unknown" if measured is None else "measured"
        return cls(quantity, None, measured, None, None, verdict, detail)


def measured_values(
    pair: ProbedPair,
    plan: ProbePlan,
    measurement: Measurement,
    network: float | None,
) -> tuple[list[MeasuredValue], list[MeasuredValue]]:
    """The values of the forward direction, including the round trip, and of the backward one. ``network``: seconds
    one way between the hosts of the nodes, as measured before; None on one host."""
    forward = _direction(pair, pair.forward, plan, measurement.forward, plan.forward)
    before = None
    if not pair.forward.profile.real:
        before = pair.forward.profile
    back = _direction(pair, pair.back, plan, measurement.back, plan.back, before)
    if not pair.real:
        judgement = judge_rtt(pair.forward.profile, pair.back.profile, plan, measurement)
        return [MeasuredValue.judged(judgement), *forward], back
    directions = [(pair.forward, forward), (pair.back, back)]
    for link, values in directions:
        if not link.profile.real:
            delay = _opposite_to_real(link, plan, measurement, network)
            values.insert(0, delay)
    return [_round_trip(plan, measurement), *forward], back


def _direction(
    pair: ProbedPair,
    link: LinkPlan,
    plan: ProbePlan,
    direction: OneWay,
    saturation: Saturation | None,
    before: LinkProfile | None = None,
) -> list[MeasuredValue]:
    if link.profile.real:
        return _real(direction, saturation)
    others = pair.others[link is pair.back]
    judgements = judge_direction(link.profile, plan, direction, saturation, others, before)
    one_clock = pair.source.host == pair.target.host  # one-way delays need one
    values = []
    for judgement in judgements:
        if one_clock or judgement.quantity != "delay":
            values.append(MeasuredValue.judged(judgement))
    return values


def _real(direction: OneWay, saturation: Saturation | None) -> list[MeasuredValue]:
    lost = None
    if direction.received is not None:
        lost = direction.sent - direction.received
    received = direction.received or 0
    values = [
        _share("loss", lost, direction.sent),
        _share("duplicate", direction.duplicated, received),
        _share("reorder", direction.reordered, received),
    ]
    if saturation is not None:
        detail = "too little arrived"
        if direction.rate:
            detail = f"what one TCP stream got in {saturation.seconds:.3g} s"
        values.append(MeasuredValue.only_measured("rate", direction.rate, detail))
    return values


def _share(quantity: str, count: int | None, packets: int) -> MeasuredValue:
    """The share that ``count`` is of so many packets."""
    if count is None or not packets:
        return MeasuredValue.only_measured(quantity, None, "no packet from the far end arrived")
    return MeasuredValue.only_measured(quantity, count / packets, f"{count} of {packets}")


def _round_trip(plan: ProbePlan, measurement: Measurement) -> MeasuredValue:
    if measurement.rtt_median is None:
        return MeasuredValue.only_measured("rtt", None, f"no echo of {plan.count} probes came back")
    p99 = 1000 * (measurement.rtt_p99 or 0.0)  # ms
    detail = f"median of {measurement.rtt_samples}, 99th percentile {p99:.3g} ms"
    return MeasuredValue.only_measured("rtt", measurement.rtt_median, detail)


def _opposite_to_real(
    link: LinkPlan,
    plan: ProbePlan,
    measurement: Measurement,
    network: float | None,
) -> MeasuredValue:
    """The delay of an emulated direction with a real way back."""
    rest = None
    if measurement.rtt_median is not None and network is not None:
        rest = max(0.0, measurement.rtt_median - network)
    way = replace(measurement.forward, delay=rest, received=measurement.rtt_samples)
    judgement = judge_delay(link.profile, plan, way)
    value = MeasuredValue.judged(judgement)
    return replace(value, detail=f"{value.detail}; the round trip less the delay between the hosts")
