"""Before training, measure one link of each kind against its profile, from inside the nodes' own namespaces.

Links are of one kind if they have the same class and the same profiles, and real ones also the same hosts. One pair of
each kind is measured. Pairs without a common node are measured at the same time. The checks and the report read the
figures from the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence

from netem.errors import NetemError
from netem.measurement.contention import Channels
from netem.measurement.measure import Measurement, ProbePlan, plan_probe, probe_arguments
from orchestrator import text
from orchestrator.errors import HostError
from orchestrator.fabric.base import NodeHandle
from orchestrator.fabric.namespaces.wiring import MTU
from orchestrator.fabric.prober import Prober
from orchestrator.fabric.underlay import HostsNetwork, pair_of
from orchestrator.fidelity.overload import BUSY_MEANWHILE
from orchestrator.planning.media import seen_alone
from orchestrator.planning.plan import LinkPlan, Plan
from orchestrator.record.rows import SHARED, ProbeResult
from orchestrator.run.context import RunContext
from orchestrator.run.links import channel_probe
from orchestrator.run.links.channel_probe import ProbedChannel, measured_alone, others_of
from orchestrator.run.links.figures import Figure, ProbedPair, figures
from orchestrator.run.links.repetition import REPETITIONS, Host, Meanwhile, measure_once, measure_until_valid
from orchestrator.run.nodes.session import Session
from orchestrator.scenario.sections.drivers import link_kind
from orchestrator.scenario.sections.topology import Ends

PairFigures = tuple[list[Figure], list[Figure]] | str  # forward and back, or why there are none
ChannelFigures = list[tuple[str, Figure]] | str  # each with the link or member that it is about

TIMEOUT = 120.0  # s for one pair, in addition to what the measurement takes
STARTING = 0.5  # s until both ends of a measurement run
WORTH_SAYING = 5.0  # s that measurements take
AT_ONCE = 2  # pairs; a probe sends its datagrams on time only if probes do not take all cores of the host


def one_of_each_kind(
    plan: Plan, present: Iterable[str], engine: str = "", elsewhere: Collection[Ends] | None = None
) -> list[ProbedPair]:
    """The pairs to measure among the nodes ``present``, few of which share a node. ``engine``: see `seen_alone`.
    ``elsewhere``: links that are cut, because their device is at another edge; None: as at the start of the run."""
    waiting = {(link.source, link.target) for link in plan.links if link.waits} if elsewhere is None else elsewhere
    there = set(present)
    links = {(link.source, link.target): link for link in plan.links}
    channels = seen_alone(plan, engine)
    kinds: dict[tuple[object, ...], list[ProbedPair]] = {}
    for link in plan.links:
        connected = (link.source, link.target) not in waiting
        if link.source < link.target and connected and {link.source, link.target} <= there:
            back = links[link.target, link.source]
            ends = (plan.node(link.source), plan.node(link.target))
            shared = _shared((link, back), channels)
            others = (others_of(link, channels), others_of(back, channels))
            pair = ProbedPair(*ends, measured_alone(link, channels), measured_alone(back, channels), shared, others)
            kinds.setdefault(pair.kind, []).append(pair)
    taken: set[str] = set()
    chosen = []
    for pairs in kinds.values():
        pair = min(pairs, key=lambda each: len(taken & {each.source.name, each.target.name}))
        taken |= {pair.source.name, pair.target.name}
        chosen.append(pair)
    return chosen


def batches(pairs: list[ProbedPair], most: int = AT_ONCE) -> Iterator[list[ProbedPair]]:
    """Groups of at most ``most`` pairs. No node and no channel is in a group twice. A pair with a real link is
    alone, because its measurement fills the network that others may cross."""
    left = list(pairs)
    while left:
        batch: list[ProbedPair] = []
        for pair in list(left):
            taken = {place for each in batch for place in each.places}
            alone = pair.real or any(each.real for each in batch)
            if len(batch) < (1 if alone else most) and not pair.places & taken:
                batch.append(pair)
                left.remove(pair)
        yield batch


async def probe_links(
    run: RunContext,
    session: Session,
    prober: Prober,
    engine: str,
    network: HostsNetwork | None = None,
    *,
    quick: bool = True,
    host: Host | None = None,
) -> None:
    """Measure one link of each kind and record the verdicts. On one host, a failure while it was saturated is measured
    again (see `repetition`). ``quick``: see `netem.measurement.measure.plan_probe`."""
    if network is None:
        delays = {}
    else:
        delays = {pair.hosts: pair.delay for pair in network.first.pairs}
    handles = {name: state.handle for name, state in session.nodes.items() if state.handle is not None}
    pairs = one_of_each_kind(run.plan, handles, engine, session.moves.elsewhere)
    run.view.line(f"measuring {text.count(len(pairs), 'kind')} of links{_duration(run.plan, pairs, prober.mtu, quick)}")
    host = host or Host()
    for batch in batches(pairs):

        async def measure(chosen: Sequence[ProbedPair]) -> list[PairFigures]:
            return await asyncio.gather(
                *(
                    _measure(
                        pair,
                        handles,
                        prober,
                        delays.get(pair_of(pair.source.host, pair.target.host)),
                        planned(pair, run.plan, prober.mtu, quick=quick, engine=engine),
                    )
                    for pair in chosen
                )
            )

        def again(pair: ProbedPair, result: PairFigures, repetition: int) -> None:
            found = result if isinstance(result, str) else [*result[0], *result[1]]
            _note_repetition(run, f"the link {pair.source.name} - {pair.target.name}", found, repetition)

        if network is None:
            outcomes = await measure_until_valid(batch, measure, _pair_failed, again, host)
        else:
            outcomes = await measure_once(batch, measure, host)
        for pair, (result, meanwhile) in zip(batch, outcomes, strict=True):
            _write(run, pair, result, meanwhile)
    for probed in channel_probe.one_of_each_kind(run.plan, handles):
        run.view.line(f"measuring {probed.name} with {text.count(len(probed.loading), 'member')}")
        await _probe_channel(run, probed, handles, prober, engine, host, alone=network is None)


def planned(
    pair: ProbedPair,
    plan: Plan,
    mtu: int = MTU,
    *,
    quick: bool = True,
    engine: str = "",
) -> ProbePlan:
    """What is sent to measure a pair. ``mtu``, ``quick``: see `netem.measurement.measure.plan_probe`. ``engine``: that
    of the links."""
    ways = pair.forward.profile, pair.back.profile
    mtu = min(mtu, pair.forward.mtu or mtu)
    return plan_probe(*ways, quick=quick, mtu=mtu, longest=plan.probe_longest, rate_last=engine == "kernel")


def seconds_of_links(plan: Plan, pairs: list[ProbedPair], mtu: int = MTU, *, quick: bool = True) -> float:
    """About how long the measurement of these pairs takes."""
    return sum(
        STARTING + max(planned(pair, plan, mtu, quick=quick).seconds for pair in batch) for batch in batches(pairs)
    )


def seconds_of_probes(plan: Plan) -> float:
    """About how long all measurements before the training take."""
    present = [node.name for node in plan.nodes if node.joins is None]
    seconds = seconds_of_links(plan, one_of_each_kind(plan, present, plan.engine))
    channels = channel_probe.one_of_each_kind(plan, present)
    return seconds + sum(STARTING + channel_probe.seconds_of(each, plan, MTU) for each in channels)


def _duration(plan: Plan, pairs: list[ProbedPair], mtu: int, quick: bool) -> str:
    """For a message; empty if it is short."""
    seconds = seconds_of_links(plan, pairs, mtu, quick=quick)
    return f", which takes about {text.duration(seconds)}" if seconds >= WORTH_SAYING else ""


async def _probe_channel(
    run: RunContext,
    probed: ProbedChannel,
    handles: dict[str, NodeHandle],
    prober: Prober,
    engine: str,
    host: Host,
    *,
    alone: bool,
) -> None:
    """Measure a channel and record its figures. ``alone``: this host is the only one of the run."""

    async def measure(chosen: Sequence[ProbedChannel]) -> list[ChannelFigures]:
        return [await channel_probe.measure(each, run.plan, handles, prober, engine) for each in chosen]

    def again(channel: ProbedChannel, result: ChannelFigures, repetition: int) -> None:
        found = result if isinstance(result, str) else [figure for _, figure in result]
        _note_repetition(run, channel.name, found, repetition)

    if alone:
        ((result, meanwhile),) = await measure_until_valid([probed], measure, _channel_failed, again, host)
    else:
        ((result, meanwhile),) = await measure_once([probed], measure, host)
    _write_channel(run, probed.name, result, meanwhile)


def _pair_failed(result: PairFigures) -> bool:
    """Whether there are no figures, or one is not as configured."""
    if isinstance(result, str):
        return True
    forward, back = result
    return any(figure.verdict == "fail" for figure in (*forward, *back))


def _channel_failed(result: ChannelFigures) -> bool:
    """Whether there are no figures, or one is not as configured."""
    return isinstance(result, str) or any(figure.verdict == "fail" for _, figure in result)


def _note_repetition(run: RunContext, what: str, result: list[Figure] | str, repetition: int) -> None:
    """Record and show what a repetition replaces."""
    if isinstance(result, str):
        reason = f"not measured: {result}"
    else:
        reason = text.some([_as_measured(figure) for figure in result if figure.verdict == "fail"])
    sentence = f"{what} is measured again ({repetition} of at most {REPETITIONS} repetitions), because {BUSY_MEANWHILE}"
    run.note("note", {"text": f"{sentence}; not counted: {reason}"})
    run.view.line(sentence)


def _as_measured(figure: Figure) -> str:
    if figure.measured is None:
        value = "nothing"
    else:
        value = text.quantity(figure.quantity, figure.measured)
    return f"{figure.quantity} {value}"


def _shared(pair: Iterable[LinkPlan], channels: Channels) -> tuple[object, ...]:
    """What distinguishes the channels that a link crosses."""
    of = [(channels[name], member) for link in pair for name, member in link.crossings]
    return tuple((profile.share, profile.buffer, profile.rate_of(member)) for profile, member in of)


async def _measure(
    pair: ProbedPair,
    handles: dict[str, NodeHandle],
    prober: Prober,
    network: float | None,
    sending: ProbePlan,
) -> PairFigures:
    """The figures of both directions, or the reason why there are none."""
    timeout = TIMEOUT + sending.seconds
    try:
        async with asyncio.timeout(timeout):
            address = pair.target.address
            source = handles[pair.source.name]
            target = handles[pair.target.name]
            async with prober.responding(target, address) as ready:
                found = await prober.probe(source, probe_arguments(address, ready, sending))
            return figures(pair, sending, Measurement.from_mapping(found), network)
    except (HostError, NetemError, TimeoutError, ValueError) as error:
        return str(error) or f"it took more than {timeout:.0f} s"


def _write_channel(run: RunContext, channel: str, found: ChannelFigures, meanwhile: Meanwhile) -> None:
    """Record the figures of a channel, and show those that are not as configured."""
    t = run.clock()
    say = run.view.line
    kind = link_kind(run.plan.driver, real=False)
    if isinstance(found, str):
        say(f"{channel} could not be measured: {found}")
        found = [("", Figure.only_measured("rate", None, f"not measured: {found}"))]
    for target, figure in found:
        each = figure.on_host(saturated=meanwhile.saturated, share=meanwhile.share)
        run.record.probe(ProbeResult(t, channel, target, SHARED, **vars(each), kind=kind))
        if each.verdict == "fail":
            say(f"{channel} is not as configured: {each.quantity}: {each.detail}")


def _write(run: RunContext, pair: ProbedPair, result: PairFigures, meanwhile: Meanwhile) -> None:
    """Record the figures, and show those of real links and those that are not as configured."""
    t = run.clock()
    say = run.view.line
    if isinstance(result, str):
        say(f"the link {pair.source.name} - {pair.target.name} could not be measured: {result}")
        result = [Figure.only_measured("rtt", None, f"not measured: {result}")], []
    for link, of_link in zip((pair.forward, pair.back), result, strict=True):
        for figure in of_link:
            each = figure.on_host(saturated=meanwhile.saturated, share=meanwhile.share)
            kind = link_kind(run.plan.driver, real=each.asked is None and pair.real)
            run.record.probe(ProbeResult(t, link.source, link.target, link.link_class, **vars(each), kind=kind))
            if each.verdict == "fail":
                say(f"the link {link.source} -> {link.target} is not as configured: {each.quantity}: {each.detail}")
        measured = [each for each in of_link if each.verdict == "measured"]
        if measured:
            listed = ", ".join(f"{each.quantity} {text.quantity(each.quantity, each.measured)}" for each in measured)
            say(f"the real link {link.source} -> {link.target}, measured: {listed}")
