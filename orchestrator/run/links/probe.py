"""Before training, measure one link of each kind against its profile, from inside the nodes' own namespaces.

Links are of one kind if they have the same class and the same profiles, and real ones also the same hosts. One pair of
each kind is measured. Pairs without a common node are measured at the same time. The checks and the report read the
figures from the record.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator

from netem.errors import NetemError
from netem.measurement.measure import Measurement, plan_probe, probe_arguments
from orchestrator import text
from orchestrator.errors import HostError
from orchestrator.fabric.base import Handle
from orchestrator.fabric.prober import Prober
from orchestrator.fabric.underlay import HostsNetwork, pair_of
from orchestrator.fidelity.overload import was_saturated
from orchestrator.host.kernel.load import read_load
from orchestrator.planning.plan import Plan
from orchestrator.run.context import RunContext
from orchestrator.run.links.figures import Figure, ProbedPair, figures, measured_on_a_busy_host
from orchestrator.run.nodes.session import Session
from orchestrator.scenario.sections.drivers import link_kind

PairFigures = tuple[list[Figure], list[Figure]] | str  # forward and back, or why there are none

TIMEOUT = 120.0  # s for one pair
AT_ONCE = 2  # pairs; a probe sends its datagrams on time only if probes do not take all cores of the host


def one_of_each_kind(plan: Plan, present: Iterable[str]) -> list[ProbedPair]:
    """The pairs to measure among the nodes ``present``. They are spread so that few pairs share a node."""
    there = set(present)
    links = {(link.source, link.target): link for link in plan.links}
    kinds: dict[tuple[object, ...], list[ProbedPair]] = {}
    for link in plan.links:
        if link.source < link.target and {link.source, link.target} <= there:
            back = links[link.target, link.source]
            pair = ProbedPair(plan.node(link.source), plan.node(link.target), link, back)
            kinds.setdefault(pair.kind, []).append(pair)
    taken: set[str] = set()
    chosen = []
    for pairs in kinds.values():
        pair = min(pairs, key=lambda each: len(taken & {each.source.name, each.target.name}))
        taken |= {pair.source.name, pair.target.name}
        chosen.append(pair)
    return chosen


def batches(pairs: list[ProbedPair], most: int = AT_ONCE) -> Iterator[list[ProbedPair]]:
    """Groups of at most ``most`` pairs. No node is in a group twice. A pair with a real link is alone, because its
    measurement fills the network that others may cross."""
    left = list(pairs)
    while left:
        batch: list[ProbedPair] = []
        for pair in list(left):
            names = {name for each in batch for name in (each.source.name, each.target.name)}
            alone = pair.real or any(each.real for each in batch)
            if len(batch) < (1 if alone else most) and not {pair.source.name, pair.target.name} & names:
                batch.append(pair)
                left.remove(pair)
        yield batch


async def probe_links(
    run: RunContext, session: Session, prober: Prober, network: HostsNetwork | None = None, *, quick: bool = True
) -> None:
    """Measure one link of each kind and record the verdicts; ``quick`` as in `netem.measurement.measure.plan_probe`."""
    delays = {} if network is None else {pair.hosts: pair.delay for pair in network.first.pairs}
    handles = {name: state.handle for name, state in session.nodes.items() if state.handle is not None}
    pairs = one_of_each_kind(run.plan, handles)
    run.view.line(f"measuring {text.count(len(pairs), 'kind')} of links")
    for batch in batches(pairs):
        began, before = time.monotonic(), read_load()
        results = await asyncio.gather(
            *(
                _measure(pair, handles, prober, delays.get(pair_of(pair.source.host, pair.target.host)), quick)
                for pair in batch
            )
        )
        if network is None and was_saturated(before, read_load(), time.monotonic() - began):
            results = [_on_a_busy_host(each) for each in results]
        for pair, result in zip(batch, results, strict=True):
            _write(run, pair, result)


async def _measure(
    pair: ProbedPair, handles: dict[str, Handle], prober: Prober, network: float | None, quick: bool
) -> PairFigures:
    """The figures of both directions, or the reason why there are none."""
    try:
        async with asyncio.timeout(TIMEOUT):
            sending = plan_probe(pair.forward.profile, pair.back.profile, quick=quick, mtu=prober.mtu)
            address = pair.target.address
            source, target = handles[pair.source.name], handles[pair.target.name]
            async with prober.responding(target, address) as ready:
                found = await prober.probe(source, probe_arguments(address, ready, sending))
            return figures(pair, sending, Measurement.from_mapping(found), network)
    except (HostError, NetemError, TimeoutError, ValueError) as error:
        return str(error) or f"it took more than {TIMEOUT:.0f} s"


def _on_a_busy_host(result: PairFigures) -> PairFigures:
    """Let the figures that are not as asked say that the host had too much work."""
    if isinstance(result, str):
        return result
    there, back = result
    return measured_on_a_busy_host(there), measured_on_a_busy_host(back)


def _write(run: RunContext, pair: ProbedPair, result: PairFigures) -> None:
    """Record the figures, and tell those of real links and those that are not as asked."""
    t, say = run.clock(), run.view.line
    if isinstance(result, str):
        say(f"the link {pair.source.name} - {pair.target.name} could not be measured: {result}")
        result = [Figure.only_measured("rtt", None, f"not measured: {result}")], []
    for link, told in zip((pair.forward, pair.back), result, strict=True):
        for each in told:
            run.record.probe(
                t,
                link.source,
                link.target,
                link.link_class,
                each.quantity,
                each.asked,
                each.measured,
                each.low,
                each.high,
                each.verdict,
                each.detail,
                link_kind(run.plan.driver, real=each.asked is None and pair.real),
            )
            if each.verdict == "fail":
                say(f"the link {link.source} -> {link.target} is not as configured: {each.quantity}: {each.detail}")
        if measured := [each for each in told if each.verdict == "measured"]:
            listed = ", ".join(f"{each.quantity} {text.quantity(each.quantity, each.measured)}" for each in measured)
            say(f"the real link {link.source} -> {link.target}, measured: {listed}")
