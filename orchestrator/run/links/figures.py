"""What a probe of two nodes tells about the link between them: emulated directions are judged against their profiles,
real ones are only measured. Pure.

A round trip is judged if both directions are emulated. If one is real, the delay of the network between the hosts is
taken from the round trip, and the other direction is judged by the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from netem.measurement.judge import Judgement, judge_delay, judge_direction, judge_rtt
from netem.measurement.measure import Measurement, OneWay, ProbePlan, Saturation
from netem.profile import LinkProfile
from orchestrator.fidelity.overload import BUSY_MEANWHILE, LOAD
from orchestrator.planning.plan import LinkPlan, NodePlan
from orchestrator.results.checks.verdicts import Verdict


@dataclass(frozen=True)
class ProbedPair:
    """Two nodes and the link between them, in both directions, as it is alone on the channels that it crosses.
    ``shared``: what distinguishes these channels, for `kind`. ``others``: the queues that each direction crosses
    besides its own, see `netem.measurement.judge.judge_queue`."""

    source: NodePlan
    target: NodePlan
    forward: LinkPlan
    back: LinkPlan
    shared: tuple[object, ...] = ()
    others: tuple[Sequence[tuple[float, float]], Sequence[tuple[float, float]]] = ((), ())

    @property
    def kind(self) -> tuple[object, ...]:
        """Equal for links that one measurement stands for. Each two hosts have a network of their own."""
        hosts = {self.source.host, self.target.host} if self.real else ()
        profiles = self.forward.profile, self.back.profile
        return self.forward.link_class, *profiles, self.forward.mtu, frozenset(hosts), self.shared

    @property
    def places(self) -> set[str]:
        """The nodes and the channels that a measurement loads."""
        crossings = (*self.forward.crossings, *self.back.crossings)
        return {self.source.name, self.target.name, *(each.channel for each in crossings)}

    @property
    def real(self) -> bool:
        """Whether a direction is real."""
        return self.forward.profile.real or self.back.profile.real


@dataclass(frozen=True)
class Figure:
    """A quantity of a direction, as a `Judgement` has it; the verdict on a real link is "measured". `expected` is None
    of what was not judged."""

    quantity: str
    asked: float | None
    measured: float | None
    low: float | None
    high: float | None
    verdict: Verdict
    detail: str
    expected: float | None = None

    @classmethod
    def judged(cls, judgement: Judgement) -> Self:
        return cls(**vars(judgement))

    def on_host(self, *, saturated: bool, share: float) -> Self:
        """The figure; one that is not as configured names the load of this host, if there was any. ``share``: of the
        time of its processors."""
        if self.verdict != "fail" or not (saturated or share):
            return self
        load = BUSY_MEANWHILE if saturated else f"{LOAD}{share:.0%} busy at that time"
        return replace(self, detail=f"{self.detail}; {load}")

    @classmethod
    def only_measured(cls, quantity: str, measured: float | None, detail: str) -> Self:
        """Unknown if the measurement gave nothing."""
        return cls(quantity, None, measured, None, None, "unknown" if measured is None else "measured", detail)


def figures(
    pair: ProbedPair, plan: ProbePlan, found: Measurement, network: float | None
) -> tuple[list[Figure], list[Figure]]:
    """The figures of the forward direction, including the round trip, and of the backward one. ``network``: seconds one
    way between the hosts of the nodes, as measured before; None on one host."""
    there = _direction(pair, pair.forward, plan, found.forward, plan.forward)
    if pair.forward.profile.real:
        before = None
    else:
        before = pair.forward.profile
    back = _direction(pair, pair.back, plan, found.back, plan.back, before)
    if not pair.real:
        trip = Figure.judged(judge_rtt(pair.forward.profile, pair.back.profile, plan, found))
        return [trip, *there], back
    for link, figures in ((pair.forward, there), (pair.back, back)):
        if not link.profile.real:
            figures.insert(0, _beside_a_real_one(link, plan, found, network))
    return [_round_trip(plan, found), *there], back


def _direction(
    pair: ProbedPair,
    link: LinkPlan,
    plan: ProbePlan,
    direction: OneWay,
    saturation: Saturation | None,
    before: LinkProfile | None = None,
) -> list[Figure]:
    if link.profile.real:
        return _real(direction, saturation)
    others = pair.others[link is pair.back]
    judged = judge_direction(link.profile, plan, direction, saturation, others, before)
    one_clock = pair.source.host == pair.target.host  # one-way delays need one
    return [Figure.judged(each) for each in judged if one_clock or each.quantity != "delay"]


def _real(direction: OneWay, saturation: Saturation | None) -> list[Figure]:
    if direction.received is None:
        lost = None
    else:
        lost = direction.sent - direction.received
    counts = [("loss", lost, direction.sent)]
    counts += [("duplicate", direction.duplicated, direction.received or 0)]
    counts += [("reorder", direction.reordered, direction.received or 0)]
    found = [
        Figure.only_measured(quantity, None, "no packet from the far end arrived")
        if count is None or not number
        else Figure.only_measured(quantity, count / number, f"{count} of {number}")
        for quantity, count, number in counts
    ]
    if saturation is not None:
        how = f"what one TCP stream got in {saturation.seconds:.3g} s"
        found.append(Figure.only_measured("rate", direction.rate, how if direction.rate else "too little arrived"))
    return found


def _round_trip(plan: ProbePlan, found: Measurement) -> Figure:
    if found.rtt_median is None:
        return Figure.only_measured("rtt", None, f"no echo of {plan.count} probes came back")
    detail = f"median of {found.rtt_samples}, 99th percentile {1000 * (found.rtt_p99 or 0.0):.3g} ms"
    return Figure.only_measured("rtt", found.rtt_median, detail)


def _beside_a_real_one(link: LinkPlan, plan: ProbePlan, found: Measurement, network: float | None) -> Figure:
    """The delay of an emulated direction whose way back is real."""
    if found.rtt_median is None or network is None:
        rest = None
    else:
        rest = max(0.0, found.rtt_median - network)
    way = replace(found.forward, delay=rest, received=found.rtt_samples)
    judged = Figure.judged(judge_delay(link.profile, plan, way))
    return replace(judged, detail=f"{judged.detail}; the round trip less the delay between the hosts")
