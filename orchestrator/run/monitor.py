"""The monitor of a run that trains: it records the links' counters, and gives the view a snapshot.

The counters also show whether the link engine and this host are on time (`orchestrator.fidelity.overload`), and whether
links lose as many packets as they should (`orchestrator.fidelity.loss_audit`). Simulated links are computed, so only

"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from node.process.standstill import LEAST, Standstill
from orchestrator import text
from orchestrator.fabric.base import ChannelRow, Counted, Fabric, LinkRow, since
from orchestrator.fabric.hosts_network import HostsNetwork
from orchestrator.fidelity.loss_audit import look
from orchestrator.fidelity.overload import LoadReading, Overloads
from orchestrator.host.kernel.load import HostLoad, read_load
from orchestrator.record.events.base import RecordedEvent
from orchestrator.record.events.links import Probed
from orchestrator.record.events.overload import SHORTEST
from orchestrator.record.events.run import Gap, Note, ProcessorUse
from orchestrator.results.checks.registry import Check, checks, overall
from orchestrator.run.context import RunContext
from orchestrator.run.display.snapshot import Snapshot
from orchestrator.run.links.network import NetworkWatch
from orchestrator.run.nodes.session import Session
from orchestrator.scenario.sections.drivers import LinkKind, link_kind
from orchestrator.scenario.sections.topology import Ends

SAMPLE_EVERY = 1.0  # s
LONGEST_REST = 10.0  # s between two samples in virtual time, where links may be quiet for hours
SHOW_EVERY = 0.25
LOOK_EVERY = 10.0
CHECK_SHARE = 0.05  # of a processor that the checks of a running run may take


@contextlib.asynccontextmanager
async def watch(
    run: RunContext,
    session: Session,
    fabric: Fabric,
    network: HostsNetwork | None = None,
    *,
    virtual: bool,
) -> AsyncIterator[None]:
    """Sample and show while the body runs, and once more at its end. Record the measurements of the hosts' network.
    On a ``virtual`` clock the messages of nodes trigger this, because timers would keep the clock going for ever."""
    monitor = Monitor(run, session, fabric, None if virtual else read_load)
    await monitor.begin()
    if virtual:
        session.on_message = monitor.glance
    else:
        session.spawn(monitor.sample_forever())
        if run.plan.driver_kind.virtual:  # where no gap is possible, and each look costs more
            session.spawn(monitor.show_forever(SAMPLE_EVERY))
        else:
            session.spawn(monitor.note_gaps_forever())
            session.spawn(monitor.show_forever(SHOW_EVERY))
        if network is not None:
            network_watch = NetworkWatch(run, session.progress, network)
            session.spawn(network_watch.forever())
    try:
        yield
    finally:
        await monitor.sample(last=True)
        monitor.show()


class Monitor:
    """Reads the link engine once a second and the session four times a second. ``load`` reads the host's load. Without
    it the monitor does not judge the timing and the losses of packets."""

    def __init__(
        self,
        run: RunContext,
        session: Session,
        fabric: Fabric,
        load: Callable[[], HostLoad] | None,
    ) -> None:
        self._session = session
        self._fabric = fabric
        self._record = run.record
        self._clock = run.clock
        self._view = run.view
        self._began = run.clock() - run.past.training  # when training started
        self._classes: dict[Ends, str] = {}
        self._kinds: dict[Ends, LinkKind] = {}
        for planned in run.plan.links:
            ends = (planned.source, planned.target)
            real = planned.profile.real
            self._classes[ends] = planned.link_class
            self._kinds[ends] = link_kind(run.plan.driver, real=real)
        self._devices = set()
        for node in run.plan.nodes:
            if node.tier == "device":
                self._devices.add(node.name)
        self._device_bytes = run.past.device_bytes  # that they have sent and received in training
        self._last = run.clock()  # when rates were last computed
        groups = map(self._group, self._classes)
        self._delivered = dict.fromkeys(groups, 0)  # bytes since then
        self._load = load
        self._is_quiet = False  # no link has carried anything between the latest two samples
        self._may_rest = run.plan.driver_kind.virtual and run.plan.stop.bytes is None
        self._first: tuple[LoadReading, float] | None = None  # at the start of training; processor time of this process
        self._before: dict[Ends, LinkRow] = {}  # each link's counters when training started
        self._on_media: dict[Ends, ChannelRow] = {}  # by channel and member, likewise
        self._counted: dict[Ends, LinkRow] = {}  # each link's latest counters, since training started
        self._channels: Sequence[ChannelRow] = ()  # those with drops that are not among the links'
        self._read: dict[Ends, LinkRow] = {}  # as the engine reported them
        self._rates: dict[tuple[LinkKind, str], float] = {}
        self._overloads = Overloads()
        self._looked = run.clock()  # the latest look at losses
        self._story = run.story
        self._checks: list[Check] = []
        self._rest = -math.inf  # until when no checks are made, on the host's clock
        self._here = time.monotonic()  # when training started, on the host's clock
        self._resumed_at = run.past.training
        self._sampled = -math.inf  # when `glance` last sampled
        self._shown_round = 0  # the round that `glance` last showed,
        self._shown_at = -math.inf  # and when, on the host's clock

    async def begin(self) -> None:
        """Count the traffic on the links from now on, when training starts. Record the probes' bytes separately."""
        probed: Counter[str] = Counter()
        counted = await self._fabric.counters()
        if self._load is not None:
            t = self._clock()
            reading = LoadReading(t, counted, self._load())
            self._first = (reading, time.process_time())
        for row in counted.links:
            ends = _ends(row)
            self._before[ends] = row
            link_class = self._classes[ends]
            probed[link_class] += int(row["delivered_bytes"])
        for channel_row in counted.channels:
            self._on_media[_share(channel_row)] = channel_row
        if probed.total():
            positive = dict(+probed)
            self._record.add_event(self._clock(), Probed(positive))

    async def sample_forever(self) -> None:
        pause = SAMPLE_EVERY
        while True:
            await self.sample()
            pause = next_pause(pause, is_quiet=self._is_quiet and self._may_rest)
            await asyncio.sleep(pause)

    async def note_gaps_forever(self) -> None:
        """Record when this process stood still. Apart from the sampling, which waits for the answers of other hosts."""
        standstill = Standstill()
        while True:
            before = self._clock()
            await asyncio.sleep(SAMPLE_EVERY)
            late, stood = standstill.since(SAMPLE_EVERY)
            if late < LEAST:
                continue
            gap = Gap(
                since=round(before, 3),
                seconds=round(late, 3),
                stood_still=round(stood, 3),
            )
            self._note(self._clock(), gap)

    def glance(self) -> None:
        """Sample if a sample is due. Show and flush the record if a round has begun, or if due by the host's clock."""
        if self._clock() >= self._sampled + SAMPLE_EVERY:
            self._sampled = self._clock()
            self._session.spawn(self.sample())
        round = self._session.progress.round
        now = time.monotonic()
        due = now >= self._shown_at + SHOW_EVERY
        if not due and round == self._shown_round:
            return
        if due:
            self._check()
        self._shown_round = round
        self._shown_at = now
        self.show()
        self._record.flush()

    async def show_forever(self, pause: float) -> None:
        while True:
            self.show()
            await asyncio.sleep(pause)

    async def sample(self, *, last: bool = False) -> None:
        """Record the counters, and whether the engine is late or links lose more or less than they should."""
        counted = await self._fabric.counters()
        t = self._clock()
        self._record_links(t, counted)
        self._record_channels(t, counted)
        limit = self._session.plan.stop.bytes
        if limit is not None and self._device_bytes >= limit:
            self._session.finish("bytes")
        if self._load is not None:
            reading = LoadReading(t, counted, self._load())
            self._record_overloads(reading, last=last)
            self._look(t, last=last)
            if last:
                self._record_totals(t, counted)
        self._compute_rates(t)
        if self._load is not None:
            self._check()
        self._record.flush()

    def _record_channels(self, t: float, counted: Counted) -> None:
        rows = []
        for row in counted.channels:
            before = self._on_media.get(_share(row))
            rows.append(since(row, before))
        self._record.channels(t, rows)
        if counted.channels_apart:
            self._channels = rows

    def _record_totals(self, t: float, counted: Counted) -> None:
        """Record the packets to groups and the load of this host since training started."""
        if counted.to_groups:
            note = _to_groups(counted.to_groups)
            self._record.add_event(t, Note(note))
        if self._first is not None:
            first, own = self._first
            self._note_load(t, counted, first, own)

    def _record_links(self, t: float, counted: Counted) -> None:
        """Record the counters of the links that have changed, and count their bytes."""
        rows = []
        for row in counted.links:
            ends = _ends(row)
            if self._read.get(ends) == row:
                continue
            self._read[ends] = row
            link = since(row, self._before.get(ends))
            before = self._counted.get(ends)
            if before == link:
                continue
            recorded = {
                **link,
                "link_class": self._classes[ends],
                "kind": self._kinds[ends],
            }
            rows.append(recorded)
            grown = int(link["delivered_bytes"])
            if before:
                grown -= int(before["delivered_bytes"])
            self._delivered[self._group(ends)] += grown
            for end in ends:
                if end in self._devices:
                    self._device_bytes += grown
            self._counted[ends] = link
        self._is_quiet = not rows
        self._record.counters(t, rows)

    def _record_overloads(self, reading: LoadReading, *, last: bool) -> None:
        overloads = self._overloads.add(reading)
        if last:
            overloads = [*overloads, *self._overloads.end()]
        for overload in overloads:
            self._note(reading.t, overload)

    def _compute_rates(self, t: float) -> None:
        """Compute the rates since the latest time that they were computed, if it is long enough ago."""
        seconds = t - self._last
        if seconds < SHORTEST:
            return
        self._last = t
        self._rates = {}
        for group, delivered in self._delivered.items():
            self._rates[group] = delivered / seconds
            self._delivered[group] = 0

    def _note(self, t: float, event: RecordedEvent) -> None:
        """Record an event with the present round."""
        round = self._session.progress.round or None
        self._record.add_event(t, event, round)

    def _check(self) -> None:
        """Make the checks, unless the last ones took so long that more would take too much of a processor."""
        began = time.thread_time()
        now = time.monotonic()
        if now < self._rest:
            return
        self._checks = checks(self._story)
        took = time.thread_time() - began
        self._rest = now + took / CHECK_SHARE - SAMPLE_EVERY

    def show(self) -> None:
        session = self._session
        plan = self._session.plan
        story = self._story
        now = self._clock()
        story.seconds = max(story.seconds, now)
        ended = None
        if session.ended.done():
            ended = session.ended.result().reason
        tiers = self._tiers(ended=ended is not None)
        coming = None
        left = None
        left_here = None
        if not ended:
            time_left = story.time_left()
            if time_left is not None:
                training = self._clock() - self._began
                left = time_left.seconds
                left_here = left * self._pace(training)
            coming = story.next_fault()
        nodes_up = 0
        for up, _ in tiers.values():
            nodes_up += up
        manual = story.by_hand.keys()
        failed = {}
        for check in self._checks:
            if check["verdict"] == "fail":
                failed[check["name"]] = check["detail"]
        snapshot = Snapshot(
            t=now,
            round=story.round,
            rounds_total=plan.stop.rounds,
            nodes_up=nodes_up,
            nodes_total=len(session.nodes),
            tiers=tiers,
            metric=story.main_metric,
            value=story.latest(story.main_metric),
            covered=str(story.coverage() or ""),
            loss=story.latest("loss"),
            traffic=dict(self._rates),
            real=dict(session.progress.real),
            next_fault=None if coming is None else str(coming),
            faults_done=len(story.begun - manual),
            faults_total=len(plan.faults),
            faults_by_hand=len(story.begun & manual),
            verdict=overall(self._checks) if self._checks else None,
            failed=failed,
            left=left,
            left_here=left_here,
            ended=ended,
        )
        self._view.update(snapshot)

    def _tiers(self, *, ended: bool) -> dict[str, tuple[int, int]]:
        """How many nodes of each tier are up, and how many it has. ``ended``: those that are done count as up."""
        tiers: dict[str, tuple[int, int]] = {}
        for state in self._session.nodes.values():
            tier = state.plan.tier
            up, total = tiers.get(tier, (0, 0))
            is_done = ended and state.state == "done"
            if state.up or is_done:
                up += 1
            tiers[tier] = (up, total + 1)
        return tiers

    def _note_load(
        self,
        t: float,
        counted: Counted,
        first: LoadReading,
        own: float,
    ) -> None:
        """Record the seconds of work of this host's processors since training started, and those of this process and of
        the link engine. The nodes' are in the table resources."""
        load = first.host
        if self._load is not None:
            load = self._load()
        own = time.process_time() - own + counted.cpu_seconds - first.counted.cpu_seconds
        busy = load.busy - first.host.busy
        idle = load.idle - first.host.idle
        use = ProcessorUse(
            seconds=round(t - first.t, 3),
            busy=round(busy, 3),
            idle=round(idle, 3),
            own=round(own, 3),
        )
        self._note(t, use)

    def _look(self, t: float, *, last: bool) -> None:
        if not last and t < self._looked + LOOK_EVERY:
            return
        self._looked = t
        emulated = []
        for ends, row in self._counted.items():
            if self._kinds[ends] != "real":
                emulated.append(row)
        audit = look(emulated, self._classes, self._channels)
        self._record.add_event(t, audit)

    def _group(self, ends: Ends) -> tuple[LinkKind, str]:
        return self._kinds[ends], self._classes[ends]

    def _pace(self, training: float) -> float:
        """Seconds of the host for each second of the run: 1 unless the run's clock is virtual."""
        virtual = training - self._resumed_at
        if self._load is None and virtual > 0:
            return (time.monotonic() - self._here) / virtual
        return 1.0


def next_pause(pause: float, *, is_quiet: bool) -> float:
    """The seconds until the next sample: more and more while links are quiet."""
    if not is_quiet:
        return SAMPLE_EVERY
    return min(2 * pause, LONGEST_REST)


def _to_groups(packets: Mapping[str, int]) -> str:
    senders = []
    for node, number in sorted(packets.items()):
        sent = text.count(number, "packet")
        senders.append(f"{node} sent {sent}")
    listed = text.some(senders)
    return (
        f"no link carries packets to broadcast or multicast addresses: {listed} to such addresses, which were dropped"
    )


def _ends(link: LinkRow) -> Ends:
    return str(link["source"]), str(link["target"])


def _share(row: ChannelRow) -> tuple[str, str]:
    return str(row["channel"]), str(row["member"])
