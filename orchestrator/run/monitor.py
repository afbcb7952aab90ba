"""The monitor of a run that trains: it records the links' counters, and gives the view a snapshot.

The counters also show whether the link engine and this host keep up (`orchestrator.fidelity.overload`), and whether
links lose as many packets as they should (`orchestrator.fidelity.loss_audit`). Simulated links are computed, so only
their counters are read. What the snapshot says of the run is the answer of its story (`orchestrator.results.story`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from node.process.standstill import LEAST, Standstill
from orchestrator import text
from orchestrator.fabric.base import ChannelRow, Counted, Fabric, LinkRow, since
from orchestrator.fabric.underlay import HostsNetwork
from orchestrator.fidelity.loss_audit import EVENT as LOOKED
from orchestrator.fidelity.loss_audit import look
from orchestrator.fidelity.overload import EVENT as OVERLOAD
from orchestrator.fidelity.overload import SHORTEST, LoadReading, Overloads
from orchestrator.host.kernel.load import HostLoad, read_load
from orchestrator.record.writer import GAP, HOST_LOAD, PROBED
from orchestrator.results.checks.registry import Check, checks, overall
from orchestrator.run.context import RunContext
from orchestrator.run.display.snapshot import Snapshot
from orchestrator.run.links.network import NetworkWatch
from orchestrator.run.nodes.session import Session
from orchestrator.scenario.sections.drivers import LinkKind, link_kind
from orchestrator.scenario.sections.topology import Ends

SAMPLE_EVERY = 1.0  # s
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
    """Sample and show while the body runs, and once more at its end. Record what becomes of the network between hosts.
    On a ``virtual`` clock the messages of nodes trigger this, because timers would keep the clock going for ever."""
    monitor = Monitor(run, session, fabric, None if virtual else read_load)
    await monitor.begin()
    if virtual:
        session.on_message = monitor.glance
    else:
        session.spawn(monitor.sample_forever())
        session.spawn(monitor.note_gaps_forever())
        session.spawn(monitor.show_forever())
        if network is not None:
            session.spawn(NetworkWatch(run, session.progress, network).forever())
    try:
        yield
    finally:
        await monitor.sample(last=True)
        monitor.show()


class Monitor:
    """Reads the link engine once a second and the session four times a second. ``load`` reads the host's load. Without
    it the monitor does not judge the timing and the losses of packets."""

    def __init__(self, run: RunContext, session: Session, fabric: Fabric, load: Callable[[], HostLoad] | None) -> None:
        self._session = session
        self._fabric = fabric
        self._record = run.record
        self._clock = run.clock
        self._view = run.view
        self._began = run.clock() - run.past.training  # when training began
        self._classes = {(link.source, link.target): link.link_class for link in run.plan.links}
        self._kinds = {
            (link.source, link.target): link_kind(run.plan.driver, real=link.profile.real) for link in run.plan.links
        }
        self._devices = {node.name for node in run.plan.nodes if node.tier == "device"}
        self._device_bytes = run.past.device_bytes  # that they have sent and received in training
        self._last = run.clock()  # when rates were last computed
        self._delivered = Counter({self._group(ends): 0 for ends in self._classes})  # bytes since then
        self._load = load
        self._first: tuple[LoadReading, float] | None = None  # at the start of training; processor time of this process
        self._before: dict[Ends, LinkRow] = {}  # each link's counters when training began
        self._on_media: dict[Ends, ChannelRow] = {}  # by channel and member, likewise
        self._counted: dict[Ends, LinkRow] = {}  # each link's latest counters, since training began
        self._channels: Sequence[ChannelRow] = ()  # those whose drops are not among the links'
        self._read: dict[Ends, LinkRow] = {}  # as the engine reported them
        self._rates: dict[tuple[LinkKind, str], float] = {}
        self._overloads = Overloads()
        self._looked = run.clock()  # the latest look at losses
        self._story = run.story
        self._checks: list[Check] = []
        self._rest = -math.inf  # until when no checks are made, on the host's clock
        self._here = time.monotonic()  # when training began, on the host's clock
        self._resumed_at = run.past.training
        self._sampled = -math.inf  # when `glance` last sampled
        self._shown = 0, -math.inf  # the round that `glance` last showed, and when, on the host's clock

    async def begin(self) -> None:
        """Count the traffic on the links from now on, when training begins. Record the probes' bytes separately."""
        probed: Counter[str] = Counter()
        counted = await self._fabric.counters()
        if self._load is not None:
            self._first = LoadReading(self._clock(), counted, self._load()), time.process_time()
        for link in counted.links:
            self._before[_ends(link)] = link
            probed[self._classes[_ends(link)]] += int(link["delivered_bytes"])
        self._on_media = {_share(row): row for row in counted.channels}
        if probed.total():
            self._record.event(self._clock(), None, PROBED, None, {"bytes": dict(+probed)})

    async def sample_forever(self) -> None:
        while True:
            await self.sample()
            await asyncio.sleep(SAMPLE_EVERY)

    async def note_gaps_forever(self) -> None:
        """Record when this process stood still. Apart from the sampling, which waits for the answers of other hosts."""
        standstill = Standstill()
        while True:
            before = self._clock()
            await asyncio.sleep(SAMPLE_EVERY)
            late, stood = standstill.since(SAMPLE_EVERY)
            if late >= LEAST:
                data = {"since": round(before, 3), "seconds": round(late, 3), "stood_still": round(stood, 3)}
                self._record.event(self._clock(), None, GAP, self._session.progress.round or None, data)

    def glance(self) -> None:
        """Sample if a sample is due. Show and flush the record if a round has begun, or if due by the host's clock."""
        if self._clock() >= self._sampled + SAMPLE_EVERY:
            self._sampled = self._clock()
            self._session.spawn(self.sample())
        round = self._session.progress.round
        now = time.monotonic()
        if round != self._shown[0] or now >= self._shown[1] + SHOW_EVERY:
            if now >= self._shown[1] + SHOW_EVERY:
                self._check()
            self._shown = round, now
            self.show()
            self._record.flush()

    async def show_forever(self) -> None:
        while True:
            self.show()
            await asyncio.sleep(SHOW_EVERY)

    async def sample(self, *, last: bool = False) -> None:
        """Record the counters, and whether the engine does not keep up or links lose more or less than they should."""
        counted = await self._fabric.counters()
        t = self._clock()
        rows = []
        for row in counted.links:
            ends = _ends(row)
            if self._read.get(ends) == row:
                continue
            self._read[ends] = row
            link = since(row, self._before.get(ends))
            before = self._counted.get(ends)
            if before != link:
                rows.append({**link, "link_class": self._classes[ends], "kind": self._kinds[ends]})
                grown = int(link["delivered_bytes"]) - (int(before["delivered_bytes"]) if before else 0)
                self._delivered[self._group(ends)] += grown
                self._device_bytes += grown * sum(end in self._devices for end in ends)
                self._counted[ends] = link
        self._record.counters(t, rows)
        channels = [since(row, self._on_media.get(_share(row))) for row in counted.channels]
        self._record.channels(t, channels)
        if counted.channels_apart:
            self._channels = channels
        limit = self._session.plan.stop.bytes
        if limit is not None and self._device_bytes >= limit:
            self._session.finish("bytes")
        if self._load is not None:
            over = self._overloads.add(LoadReading(t, counted, self._load()))
            for each in [*over, *(self._overloads.end() if last else ())]:
                self._record.event(t, None, OVERLOAD, self._session.progress.round or None, each.to_json())
            self._look(t, last=last)
            if last and counted.to_groups:
                self._record.event(t, None, "note", None, {"text": _to_groups(counted.to_groups)})
            if last and self._first is not None:
                self._note_load(t, counted, *self._first)
        if t - self._last >= SHORTEST:
            self._rates = {name: count / (t - self._last) for name, count in self._delivered.items()}
            self._last, self._delivered = t, Counter(dict.fromkeys(self._delivered, 0))
        if self._load is not None:
            self._check()
        self._record.flush()

    def _check(self) -> None:
        """Make the checks, unless the last ones took so long that more would take too much of a processor."""
        began = time.thread_time()
        now = time.monotonic()
        if now >= self._rest:
            self._checks = checks(self._story)
            self._rest = now + (time.thread_time() - began) / CHECK_SHARE - SAMPLE_EVERY

    def show(self) -> None:
        session = self._session
        plan = self._session.plan
        story = self._story
        story.seconds = max(story.seconds, self._clock())
        tiers: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        if session.ended.done():
            ended = session.ended.result().reason
        else:
            ended = None
        for state in session.nodes.values():
            tiers[state.plan.tier][0] += state.up or (ended is not None and state.state == "done")
            tiers[state.plan.tier][1] += 1
        left = None if ended else story.time_left()
        coming = None if ended else story.next_fault()
        self._view.update(
            Snapshot(
                t=self._clock(),
                round=story.round,
                rounds_total=plan.stop.rounds,
                nodes_up=sum(up for up, _ in tiers.values()),
                nodes_total=len(session.nodes),
                tiers={tier: (up, total) for tier, (up, total) in tiers.items()},
                metric=story.main_metric,
                value=story.latest(story.main_metric),
                covered=str(story.coverage() or ""),
                loss=story.latest("loss"),
                traffic=dict(self._rates),
                real=dict(session.progress.real),
                next_fault=None if coming is None else str(coming),
                faults_done=len(story.begun - story.by_hand.keys()),
                faults_total=len(plan.faults),
                faults_by_hand=len(story.begun & story.by_hand.keys()),
                verdict=overall(self._checks) if self._checks else None,
                failed={check["name"]: check["detail"] for check in self._checks if check["verdict"] == "fail"},
                left=None if left is None else left.seconds,
                left_here=None if left is None else left.seconds * self._pace(self._clock() - self._began),
                ended=ended,
            )
        )

    def _note_load(self, t: float, counted: Counted, first: LoadReading, own: float) -> None:
        """Record the seconds of work of this host's processors since training began, and those of this process and of
        the link engine. The nodes' are in the table resources."""
        if self._load is not None:
            load = self._load()
        else:
            load = first.host
        own = time.process_time() - own + counted.cpu_seconds - first.counted.cpu_seconds
        facts = {"seconds": t - first.t, "busy": load.busy - first.host.busy, "idle": load.idle - first.host.idle}
        data = {name: round(value, 3) for name, value in (facts | {"own": own}).items()}
        self._record.event(t, None, HOST_LOAD, self._session.progress.round or None, data)

    def _look(self, t: float, *, last: bool) -> None:
        if last or t >= self._looked + LOOK_EVERY:
            self._looked = t
            requested = [row for ends, row in self._counted.items() if self._kinds[ends] != "real"]
            self._record.event(t, None, LOOKED, None, look(requested, self._classes, self._channels))

    def _group(self, ends: Ends) -> tuple[LinkKind, str]:
        return self._kinds[ends], self._classes[ends]

    def _pace(self, training: float) -> float:
        """Seconds of the host for each second of the run: 1 unless the run's clock is virtual."""
        virtual = training - self._resumed_at
        if self._load is None and virtual > 0:
            return (time.monotonic() - self._here) / virtual
        return 1.0


def _to_groups(packets: Mapping[str, int]) -> str:
    listed = text.some(f"{node} sent {text.count(number, 'packet')}" for node, number in sorted(packets.items()))
    return (
        f"no link carries packets to broadcast or multicast addresses: {listed} to such addresses, which were dropped"
    )


def _ends(link: LinkRow) -> Ends:
    return str(link["source"]), str(link["target"])


def _share(row: ChannelRow) -> tuple[str, str]:
    return str(row["channel"]), str(row["member"])
