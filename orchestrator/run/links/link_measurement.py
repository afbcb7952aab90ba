"""Before training, measure one link of each kind against its profile, from inside the nodes' own namespaces.

Links are of one kind if they have the same class and the same profiles, and real ones also the same hosts. One pair of
each kind is measured, unless an earlier run of the same command has measured it. Pairs without a common node are
measured at the same time. The checks and the report read the values from the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from netem.errors import NetemError
from netem.measurement.contention import Channels
from netem.measurement.endpoints import probe_arguments
from netem.measurement.probe_plan import Measurement, ProbePlan, plan_probe
from orchestrator import text
from orchestrator.errors import HostError
from orchestrator.fabric.base import NodeHandle
from orchestrator.fabric.hosts_network import HostsNetwork
from orchestrator.fabric.link_prober import Prober
from orchestrator.fabric.namespaces.wiring import MTU
from orchestrator.planning.media import seen_alone
from orchestrator.planning.plan import LinkPlan, Plan
from orchestrator.record.events.network import pair_of
from orchestrator.record.events.overload import BUSY_MEANWHILE
from orchestrator.record.rows import SHARED, ProbeResult
from orchestrator.run.context import RunContext
from orchestrator.run.links import channel_measurement
from orchestrator.run.links.channel_measurement import ProbedChannel, measured_alone, others_of
from orchestrator.run.links.earlier_measurements import Conditions, EarlierMeasurements
from orchestrator.run.links.measured_values import MeasuredValue, ProbedPair, measured_values
from orchestrator.run.links.repetition import REPETITIONS, Host, Meanwhile, measure_once, measure_until_valid
from orchestrator.run.nodes.session import Session
from orchestrator.scenario.sections.drivers import link_kind
from orchestrator.scenario.sections.topology import Ends

PairValues = tuple[list[MeasuredValue], list[MeasuredValue]] | str  # forward and back, or why there are none
ChannelValues = list[tuple[str, MeasuredValue]] | str  # each with the link or member that it is about

TIMEOUT = 120.0  # s for one pair, in addition to what the measurement takes
STARTING = 0.5  # s until both ends of a measurement run
WORTH_SAYING = 5.0  # s that measurements take
AT_ONCE = 2  # pairs; a probe sends its datagrams on time only if probes do not take all cores of the host


def one_of_each_kind(
    plan: Plan,
    present: Iterable[str],
    engine: str = "",
    elsewhere: Collection[Ends] | None = None,
) -> list[ProbedPair]:
    """The pairs to measure among the nodes ``present``, few of which share a node. ``engine``: see `seen_alone`.
    ``elsewhere``: links that are cut, because their device is at another edge; None: as at the start of the run."""
    links: dict[Ends, LinkPlan] = {}
    waiting = set()
    for link in plan.links:
        pair_of_nodes = (link.source, link.target)
        links[pair_of_nodes] = link
        if link.waits:
            waiting.add(pair_of_nodes)
    if elsewhere is None:
        elsewhere = waiting
    online = set(present)
    channels = seen_alone(plan, engine)
    kinds: dict[object, list[ProbedPair]] = {}
    for (source, target), link in links.items():
        is_forward = source < target
        connected = (source, target) not in elsewhere
        if is_forward and connected and {source, target} <= online:
            back = links[target, source]
            pair = ProbedPair(
                plan.node(source),
                plan.node(target),
                forward=measured_alone(link, channels),
                back=measured_alone(back, channels),
                shared=_shared((link, back), channels),
                others=(others_of(link, channels), others_of(back, channels)),
            )
            kinds.setdefault(pair.kind, []).append(pair)
    taken: set[str] = set()
    chosen = []
    for pairs in kinds.values():
        pair = _least_shared(pairs, taken)
        taken |= {pair.source.name, pair.target.name}
        chosen.append(pair)
    return chosen


def _least_shared(pairs: Iterable[ProbedPair], taken: set[str]) -> ProbedPair:
    """The first of the pairs with the fewest nodes that are taken."""

    def shared(pair: ProbedPair) -> int:
        nodes = {pair.source.name, pair.target.name}
        return len(taken & nodes)

    return min(pairs, key=shared)


def batches(pairs: list[ProbedPair], most: int = AT_ONCE) -> Iterator[list[ProbedPair]]:
    """Groups of at most ``most`` pairs. No node and no channel is in a group twice. A pair with a real link is
    alone, because its measurement fills the network that others may cross."""
    left = list(pairs)
    while left:
        batch: list[ProbedPair] = []
        taken: set[str] = set()
        for pair in list(left):
            alone = pair.real or any(other.real for other in batch)
            limit = 1 if alone else most
            if len(batch) < limit and not pair.places & taken:
                batch.append(pair)
                taken |= pair.places
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
    tcp: Mapping[str, str] | None = None,
    earlier: EarlierMeasurements | None = None,
) -> None:
    """Measure one link of each kind and record the verdicts. On one host, a failure while it was saturated is measured
    again (see `repetition`). ``quick``: see `netem.measurement.probe_plan.plan_probe`. ``tcp``: the settings in force.
    ``earlier``: what need not be measured again on this host; what is measured is added to it."""
    delays = {}
    if network is not None:
        for reading in network.first.pairs:
            delays[reading.hosts] = reading.delay
    handles = {}
    for name, state in session.nodes.items():
        if state.handle is not None:
            handles[name] = state.handle
    pairs = one_of_each_kind(run.plan, handles, engine, session.moves.elsewhere)
    if network is not None or not quick:
        earlier = None

    def conditions(pair: ProbedPair) -> Conditions:
        sending = planned(pair, run.plan, prober.mtu, quick=quick, engine=engine)
        return Conditions.of(pair, run.plan.driver, engine, tcp or {}, sending)

    if earlier is not None:
        pairs = _not_known(run, pairs, earlier, conditions)
    if pairs:
        kinds = text.count(len(pairs), "kind")
        duration = _duration(run.plan, pairs, prober.mtu, quick)
        run.view.line(f"measuring {kinds} of links{duration}")
    host = host or Host()

    async def measure(batch: Sequence[ProbedPair]) -> list[PairValues]:
        measurements = []
        for pair in batch:
            hosts = pair_of(pair.source.host, pair.target.host)
            delay = delays.get(hosts)
            sending = planned(pair, run.plan, prober.mtu, quick=quick, engine=engine)
            measuring = _measure(pair, handles, prober, delay, sending)
            measurements.append(measuring)
        return await asyncio.gather(*measurements)

    def note_repetition(pair: ProbedPair, result: PairValues, repetition: int) -> None:
        name = f"the link {pair.source.name} - {pair.target.name}"
        if isinstance(result, str):
            _note_repetition(run, name, result, repetition)
        else:
            forward, back = result
            _note_repetition(run, name, [*forward, *back], repetition)

    for batch in batches(pairs):
        if network is None:
            outcomes = await measure_until_valid(batch, measure, _pair_failed, note_repetition, host)
        else:
            outcomes = await measure_once(batch, measure, host)
        for pair, (result, meanwhile) in zip(batch, outcomes, strict=True):
            rows = _write(run, pair, result, meanwhile)
            if earlier is not None:
                earlier.keep(conditions(pair), rows, run.directory.run)
    for probed in channel_measurement.one_of_each_kind(run.plan, handles):
        members = text.count(len(probed.loading), "member")
        run.view.line(f"measuring {probed.name} with {members}")
        alone = network is None
        await _probe_channel(run, probed, handles, prober, engine, host, alone=alone)


def _not_known(
    run: RunContext,
    pairs: Iterable[ProbedPair],
    earlier: EarlierMeasurements,
    conditions: Callable[[ProbedPair], Conditions],
) -> list[ProbedPair]:
    """The pairs that must be measured. Records the values of the others, as an earlier run measured them."""
    unknown = []
    for pair in pairs:
        rows = earlier.under(conditions(pair))
        if not rows:
            unknown.append(pair)
            continue
        run.view.line(f"the link {pair.source.name} - {pair.target.name} was measured in {rows[0].measured_in}")
        t = run.clock()
        for row in rows:
            run.record.probe(row._replace(t=t))
    return unknown


def planned(
    pair: ProbedPair,
    plan: Plan,
    mtu: int = MTU,
    *,
    quick: bool = True,
    engine: str = "",
) -> ProbePlan:
    """What is sent to measure a pair. ``mtu``, ``quick``: see `netem.measurement.probe_plan.plan_probe`. ``engine``:
    that of the links."""
    return plan_probe(
        pair.forward.profile,
        pair.back.profile,
        quick=quick,
        mtu=min(mtu, pair.forward.mtu or mtu),
        longest=plan.probe_longest,
        rate_last=engine == "kernel",
    )


def seconds_of_links(
    plan: Plan,
    pairs: list[ProbedPair],
    mtu: int = MTU,
    *,
    quick: bool = True,
) -> float:
    """About how long the measurement of these pairs takes."""
    of_batches = []
    for batch in batches(pairs):
        longest = 0.0
        for pair in batch:
            sending = planned(pair, plan, mtu, quick=quick)
            longest = max(longest, sending.seconds)
        of_batches.append(STARTING + longest)
    return sum(of_batches)


def seconds_of_probes(plan: Plan) -> float:
    """About how long all measurements before the training take."""
    present = [node.name for node in plan.nodes if node.joins is None]
    pairs = one_of_each_kind(plan, present, plan.engine)
    of_channels = []
    for channel in channel_measurement.one_of_each_kind(plan, present):
        seconds = channel_measurement.seconds_of(channel, plan, MTU)
        of_channels.append(STARTING + seconds)
    return seconds_of_links(plan, pairs) + sum(of_channels)


def _duration(
    plan: Plan,
    pairs: list[ProbedPair],
    mtu: int,
    quick: bool,
) -> str:
    """For a message; empty if it is short."""
    seconds = seconds_of_links(plan, pairs, mtu, quick=quick)
    if seconds < WORTH_SAYING:
        return ""
    return f", which takes about {text.duration(seconds)}"


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
    """Measure a channel and record its values. ``alone``: this host is the only one of the run."""

    async def measure(channels: Sequence[ProbedChannel]) -> list[ChannelValues]:
        results = []
        for channel in channels:
            result = await channel_measurement.measure(channel, run.plan, handles, prober, engine)
            results.append(result)
        return results

    def note_repetition(channel: ProbedChannel, result: ChannelValues, repetition: int) -> None:
        if isinstance(result, str):
            _note_repetition(run, channel.name, result, repetition)
        else:
            values = [value for _, value in result]
            _note_repetition(run, channel.name, values, repetition)

    if alone:
        outcomes = await measure_until_valid([probed], measure, _channel_failed, note_repetition, host)
    else:
        outcomes = await measure_once([probed], measure, host)
    result, meanwhile = outcomes[0]
    _write_channel(run, probed.name, result, meanwhile)


def _pair_failed(result: PairValues) -> bool:
    """Whether there are no values, or one is not as configured."""
    if isinstance(result, str):
        return True
    forward, back = result
    values = [*forward, *back]
    return any(value.verdict == "fail" for value in values)


def _channel_failed(result: ChannelValues) -> bool:
    """Whether there are no values, or one is not as configured."""
    if isinstance(result, str):
        return True
    return any(value.verdict == "fail" for _, value in result)


def _note_repetition(
    run: RunContext,
    what: str,
    result: list[MeasuredValue] | str,
    repetition: int,
) -> None:
    """Record and show what a repetition replaces."""
    if isinstance(result, str):
        reason = f"not measured: {result}"
    else:
        failed = []
        for value in result:
            if value.verdict == "fail":
                failed.append(_as_measured(value))
        reason = text.some(failed)
    sentence = f"{what} is measured again ({repetition} of at most {REPETITIONS} repetitions), because {BUSY_MEANWHILE}"
    run.note(f"{sentence}; not counted: {reason}")
    run.view.line(sentence)


def _as_measured(value: MeasuredValue) -> str:
    if value.measured is None:
        words = "nothing"
    else:
        words = text.quantity(value.quantity, value.measured)
    return f"{value.quantity} {words}"


def _shared(pair: Iterable[LinkPlan], channels: Channels) -> tuple[object, ...]:
    """What distinguishes the channels that a link crosses."""
    kinds = []
    for link in pair:
        for crossing in link.crossings:
            profile = channels[crossing.channel]
            rate = profile.rate_of(crossing.member)
            kinds.append((profile.share, profile.buffer, rate))
    return tuple(kinds)


async def _measure(
    pair: ProbedPair,
    handles: dict[str, NodeHandle],
    prober: Prober,
    network: float | None,
    sending: ProbePlan,
) -> PairValues:
    """The values of both directions, or the reason why there are none."""
    timeout = TIMEOUT + sending.seconds
    try:
        async with asyncio.timeout(timeout):
            address = pair.target.address
            source = handles[pair.source.name]
            target = handles[pair.target.name]
            async with prober.responding(target, address) as ready:
                arguments = probe_arguments(address, ready, sending)
                answer = await prober.probe(source, arguments)
            measurement = Measurement.from_mapping(answer)
            return measured_values(pair, sending, measurement, network)
    except (HostError, NetemError, TimeoutError, ValueError) as error:
        return str(error) or f"it took more than {timeout:.0f} s"


def _write_channel(
    run: RunContext,
    channel: str,
    result: ChannelValues,
    meanwhile: Meanwhile,
) -> None:
    """Record the values of a channel, and show those that are not as configured."""
    t = run.clock()
    show = run.view.line
    kind = link_kind(run.plan.driver, real=False)
    if isinstance(result, str):
        show(f"{channel} could not be measured: {result}")
        unmeasured = MeasuredValue.only_measured("rate", None, f"not measured: {result}")
        result = [("", unmeasured)]
    for target, measured in result:
        value = measured.on_host(saturated=meanwhile.saturated, share=meanwhile.share)
        row = ProbeResult(
            t,
            channel,
            target,
            SHARED,
            **vars(value),
            kind=kind,
        )
        run.record.probe(row)
        if value.verdict == "fail":
            show(f"{channel} is not as configured: {value.quantity}: {value.detail}")


def _write(
    run: RunContext,
    pair: ProbedPair,
    result: PairValues,
    meanwhile: Meanwhile,
) -> list[ProbeResult]:
    """Record the values, and show those of real links and those that are not as configured. Returns what was
    recorded."""
    t = run.clock()
    if isinstance(result, str):
        run.view.line(f"the link {pair.source.name} - {pair.target.name} could not be measured: {result}")
        unmeasured = MeasuredValue.only_measured("rtt", None, f"not measured: {result}")
        result = ([unmeasured], [])
    forward, back = result
    return [
        *_write_direction(run, t, pair, pair.forward, forward, meanwhile),
        *_write_direction(run, t, pair, pair.back, back, meanwhile),
    ]


def _write_direction(
    run: RunContext,
    t: float,
    pair: ProbedPair,
    link: LinkPlan,
    values: list[MeasuredValue],
    meanwhile: Meanwhile,
) -> list[ProbeResult]:
    show = run.view.line
    rows = []
    real_quantities = []
    for measured in values:
        value = measured.on_host(saturated=meanwhile.saturated, share=meanwhile.share)
        real = value.asked is None and pair.real
        kind = link_kind(run.plan.driver, real=real)
        row = ProbeResult(
            t,
            link.source,
            link.target,
            link.link_class,
            **vars(value),
            kind=kind,
        )
        run.record.probe(row)
        rows.append(row)
        if value.verdict == "fail":
            show(f"the link {link.source} -> {link.target} is not as configured: {value.quantity}: {value.detail}")
        if measured.verdict == "measured":
            words = text.quantity(measured.quantity, measured.measured)
            real_quantities.append(f"{measured.quantity} {words}")
    if real_quantities:
        show(f"the real link {link.source} -> {link.target}, measured: {', '.join(real_quantities)}")
    return rows
