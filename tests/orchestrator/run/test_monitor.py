from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import cast

import pytest

from netem.profile import LinkProfile
from node.runtime.clock import run_virtual
from orchestrator.fabric.base import ChannelRow, Counted, Fabric, LinkRow, plus, since
from orchestrator.host.kernel.load import HostLoad
from orchestrator.record.rows import ProbeResult
from orchestrator.record.schema import COUNTERS
from orchestrator.results.checks.verdicts import Verdict
from orchestrator.results.history import History
from orchestrator.results.presence import notes
from orchestrator.results.traffic import media, volumes
from orchestrator.run.context import RunContext
from orchestrator.run.display.snapshot import Snapshot, View
from orchestrator.run.display.terminal import PlainView
from orchestrator.run.monitor import Monitor
from orchestrator.run.resume import Past
from tests.orchestrator.run.nodes.test_session import SCENARIO, Stage
from tests.texts import containing
from tests.virtual import virtual


def row(delivered: int, **others: int | float) -> LinkRow:
    """Packets of 1000 bytes from the edge to the cloud."""
    counts: LinkRow = dict.fromkeys(COUNTERS, 0)
    counts |= {"offered": delivered, "delivered": delivered, "delivered_bytes": 1000 * delivered}
    return {"source": "edge-0", "target": "cloud", **counts, **others}


class ReadableFabric:
    """A link engine whose counters the test sets."""

    def __init__(self, *rows: LinkRow) -> None:
        self.now = Counted(links=list(rows))

    async def counters(self) -> Counted:
        return self.now


@virtual
async def test_what_probes_sent_before_training_is_distinguished(tmp_path: Path) -> None:
    stage = Stage(tmp_path, SCENARIO)
    fabric = ReadableFabric(row(3780))
    run = RunContext(stage.plan, stage.directory, stage.record, lambda: 0.0, PlainView(io.StringIO()))
    monitor = Monitor(run, stage.session, cast(Fabric, fabric), None)
    await monitor.begin()
    for delivered in (3780, 3785, 6240):
        fabric.now = Counted(links=[row(delivered)])
        await monitor.sample()
    stage.record.close()
    with History.open(stage.directory.path) as history:
        assert volumes.bytes_by_class(history) == {"edge-cloud": 2_460_000}
        assert volumes.probed_bytes_by_class(history) == {"edge-cloud": 3_780_000}
    await stage.session.close()


@virtual
@pytest.mark.parametrize(("apart", "named"), [(True, {"link": "cell up", "packets": 3}), (False, None)])
async def test_what_overflows_in_channels_is_named_with_the_losses(
    tmp_path: Path, apart: bool, named: dict[str, object] | None
) -> None:
    """``apart``: with the kernel engine, whose links do not count it. 5 packets were dropped before training."""
    stage, fabric = Stage(tmp_path, SCENARIO), ReadableFabric()
    run = RunContext(stage.plan, stage.directory, stage.record, lambda: 1.0, PlainView(io.StringIO()))
    load = lambda: HostLoad(busy=0.0, idle=0.0, waiting=None, dropped=0)  # noqa: E731
    monitor = Monitor(run, stage.session, cast(Fabric, fabric), load)

    def dropped(packets: int) -> Counted:
        counts = {"packets": 9, "bytes": 9000, "seconds": 1.0, "overflowed": packets, "queued_bytes": 0}
        channels: list[ChannelRow] = [{"channel": "cell up", "member": "edge-0", **counts}]
        return Counted(links=[row(9)], channels=channels, channels_apart=apart)

    fabric.now = dropped(5)
    await monitor.begin()
    fabric.now = dropped(8)
    await monitor.sample(last=True)
    (found,) = stage.events("links looked at")
    assert found.data["most_overflowed"] == named
    stage.record.close()
    await stage.session.close()


def test_channels_are_recorded_without_what_probes_sent(tmp_path: Path) -> None:
    def channels(packets: int, queued: int = 0) -> Counted:
        counts = {"packets": packets, "bytes": 1000 * packets, "seconds": 0.001 * packets, "overflowed": 0}
        return Counted(links=[], channels=[{"channel": "cell", "member": "edge-0", **counts, "queued_bytes": queued}])

    async def main() -> None:
        stage, fabric = Stage(tmp_path, SCENARIO), ReadableFabric()
        run = RunContext(stage.plan, stage.directory, stage.record, lambda: 1.0, PlainView(io.StringIO()))
        monitor = Monitor(run, stage.session, cast(Fabric, fabric), None)
        fabric.now = channels(500)
        await monitor.begin()
        for fabric.now in (channels(500), channels(510, 2000), channels(530)):
            await monitor.sample()
        stage.record.close()
        with History.open(stage.directory.path) as history:
            (found,) = media.channel_counters(history)
            assert found[:4] == ("cell", "edge-0", 30, 30_000)
            assert found.seconds == pytest.approx(0.03)
            assert history.rows("SELECT queued_bytes FROM channel") == [(2000,), (0,)]
        await stage.session.close()

    run_virtual(main())


@virtual
async def test_a_run_ends_when_its_devices_have_used_their_bytes(tmp_path: Path) -> None:
    """20 kB. A packet of 1000 bytes between a device and its edge counts once, one between edge and cloud not at all.
    5 kB were counted before the run was continued, the 100 packets of probes are not."""
    stage, past = Stage(tmp_path, f"{SCENARIO}stop: {{bytes: 20kb}}"), Past(device_bytes=5000)

    def links(up: int, down: int, beyond: int) -> Counted:
        ends = ("device-0-0", "edge-0"), ("edge-0", "device-0-1"), ("edge-0", "cloud")
        counts = zip(ends, (100 + up, down, beyond), strict=True)
        return Counted(links=[{**row(number), "source": a, "target": b} for (a, b), number in counts])

    fabric = ReadableFabric(*links(0, 0, 0).links)
    run = RunContext(stage.plan, stage.directory, stage.record, lambda: 0.0, PlainView(io.StringIO()), past)
    monitor = Monitor(run, stage.session, cast(Fabric, fabric), None)
    await monitor.begin()
    for up, down, ended in ((0, 0, False), (8, 6, False), (8, 7, True), (9, 9, True)):
        fabric.now = links(up, down, 40)
        await monitor.sample()
        assert stage.session.ended.done() == ended
    assert stage.session.ended.result().reason == "bytes"
    stage.record.close()
    await stage.session.close()


def test_counts_since_an_earlier_reading() -> None:
    before, now = row(10, drawn=10, asked_lost=0.5), row(25, drawn=25, asked_lost=1.75)
    assert since(now, None) == now
    assert since(now, before) == row(15, drawn=15, asked_lost=1.25)


def test_counts_of_engines_that_shaped_a_link_one_after_the_other() -> None:
    rows = row(10, overflowed=7), row(25, lost=2)
    assert plus(*rows[::-1]) == row(35, overflowed=7, lost=2)


class Shown:
    """A view that keeps the last snapshot."""

    snapshot: Snapshot

    def update(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot


def used(delivered: int, lost: int = 0) -> LinkRow:
    """Of a link that was asked to lose nothing."""
    return row(delivered, drawn=delivered + lost, lost=lost, asked_lost=0.0, asked_variance=0.0)


NOTHING = Counted(links=[used(0)])


def verdicts(
    tmp_path: Path, *counted: Counted, dropped: Sequence[int] = (), probed: Verdict = "pass", late: float = 0.0
) -> list[str | None]:
    """What is shown after each of these readings, 20 s apart, the first of which is of nothing; ``dropped`` are packets
    in the host's backlog, first when training began, ``probed`` is the verdict on the probes, a node's steps took
    ``late`` s longer than asked."""
    backlog = chain(dropped, repeat(0))

    async def main() -> list[str | None]:
        stage, fabric, view, t = Stage(tmp_path, SCENARIO), ReadableFabric(), Shown(), 0.0
        shown: list[str | None] = []
        load = lambda: HostLoad(busy=0.0, idle=0.0, waiting=None, dropped=next(backlog))  # noqa: E731
        run = RunContext(stage.plan, stage.directory, stage.record, lambda: t, cast(View, view))
        monitor = Monitor(run, stage.session, cast(Fabric, fabric), load)
        await monitor.begin()
        stage.record.event(0.0, None, "training", None, {})
        if probed == "fail":
            stage.record.probe(ProbeResult(0.0, "edge-0", "cloud", "edge-cloud", "rtt", 0.1, 0.9, 0.09, 0.11, "fail"))
        if late:
            stage.record.event(0.0, "device-0-0", "overrun", 1, {"asked": 1.0, "taken": 1.0 + late})
        for each in (NOTHING, *counted):
            fabric.now, t = each, t + 20.0
            await monitor.sample()
            monitor.show()
            shown.append(view.snapshot.verdict)
        stage.record.close()
        await stage.session.close()
        return shown

    return run_virtual(main())


@virtual
async def test_packets_to_groups_are_noted(tmp_path: Path) -> None:
    stage, fabric = Stage(tmp_path, SCENARIO), ReadableFabric()
    fabric.now = Counted(links=[used(10)], to_groups={"device-0-0": 3, "cloud": 1})
    load = lambda: HostLoad(busy=0.0, idle=0.0, waiting=None, dropped=0)  # noqa: E731
    run = RunContext(stage.plan, stage.directory, stage.record, lambda: 1.0, PlainView(io.StringIO()))
    monitor = Monitor(run, stage.session, cast(Fabric, fabric), load)
    await monitor.begin()
    await monitor.sample(last=True)
    stage.record.close()
    with History.open(stage.directory.path) as history:
        assert notes(history) == [containing("sent 1 packet, device-0-0", "3 packets")]
    await stage.session.close()


def test_links_with_losses_that_are_not_configured_are_shown(tmp_path: Path) -> None:
    sound, astray = Counted(links=[used(1000)]), Counted(links=[used(1800, lost=200)])
    assert verdicts(tmp_path, sound, astray) == ["pass", "pass", "fail"]


@virtual
async def test_real_links_are_distinguished_and_their_losses_not_audited(tmp_path: Path) -> None:
    stage, fabric, view = Stage(tmp_path, SCENARIO), ReadableFabric(), Shown()
    links = tuple(
        replace(link, profile=LinkProfile(real=link.source == "edge-0" and link.target == "cloud"))
        for link in stage.plan.links
    )
    load = lambda: HostLoad(busy=0.0, idle=0.0, waiting=None, dropped=0)  # noqa: E731
    plan = replace(stage.plan, links=links)
    run = RunContext(plan, stage.directory, stage.record, asyncio.get_running_loop().time, cast(View, view))
    monitor = Monitor(run, stage.session, cast(Fabric, fabric), load)
    await monitor.begin()
    for reading in (NOTHING, Counted(links=[used(1800, lost=200)])):
        await asyncio.sleep(20.0)
        fabric.now = reading
        await monitor.sample()
    monitor.show()
    assert view.snapshot.verdict == "pass"
    assert view.snapshot.traffic["real", "edge-cloud"] == 90_000  # 1800 packets of 1000 bytes in 20 s
    assert view.snapshot.traffic["emulated", "edge-cloud"] == 0
    (row,) = stage.record._connection.execute("SELECT kind FROM counters WHERE offered > 0").fetchall()
    assert row == ("real",)
    assert [event.data["links"] for event in stage.events("links looked at")] == [0, 0]
    stage.record.close()
    await stage.session.close()


def test_an_engine_that_is_late_is_shown(tmp_path: Path) -> None:
    late, later = Counted(links=[used(1000)], late=9, late_max=1.0), Counted(links=[used(1000)])
    # 1 s of 40 is more than a fiftieth, of 60 it is not: the run would pass if it ended then.
    assert verdicts(tmp_path, late, later) == ["pass", "fail", "pass"]


def test_links_that_were_not_as_asked_when_they_were_probed_are_shown(tmp_path: Path) -> None:
    assert verdicts(tmp_path, NOTHING, probed="fail") == ["fail", "fail"]


def test_a_node_that_is_slower_than_its_hardware_is_shown(tmp_path: Path) -> None:
    # 0.5 s of 20 is more than a fiftieth, of 40 it is not.
    assert verdicts(tmp_path, NOTHING, late=0.5) == ["fail", "pass"]


@virtual
async def test_a_node_that_ended_is_shown_and_the_load_of_the_host_recorded(tmp_path: Path) -> None:
    stage, fabric, view = Stage(tmp_path, SCENARIO), ReadableFabric(), Shown()
    loads = iter([HostLoad(10.0, 20.0, None, 0), *[HostLoad(16.0, 54.0, None, 0)] * 5])
    clock = asyncio.get_running_loop().time
    run = RunContext(stage.plan, stage.directory, stage.record, clock, cast(View, view))
    monitor = Monitor(run, stage.session, cast(Fabric, fabric), lambda: next(loads))
    await monitor.begin()
    stage.record.event(clock(), None, "training", None, {})
    stage.record.state(clock(), "edge-0", "crashed", "SIGKILL")
    await asyncio.sleep(20.0)
    await monitor.sample(last=True)
    monitor.show()
    assert view.snapshot.verdict == "fail"
    assert view.snapshot.failed == {"no unplanned failures": "1 node ended unplanned: edge-0 at 0.0 s (SIGKILL)"}
    (load,) = stage.events("host load")
    assert (load.data["seconds"], load.data["busy"], load.data["idle"]) == (20.0, 6.0, 34.0)
    assert 0 <= load.data["own"] < 10
    stage.record.close()
    await stage.session.close()


def test_packets_lost_that_may_be_others_are_shown_as_not_known(tmp_path: Path) -> None:
    assert verdicts(tmp_path, NOTHING, dropped=(0, 0, 7)) == ["pass", "unknown"]


@virtual
async def test_accuracy_and_loss_of_the_leading_node_are_shown(tmp_path: Path) -> None:
    stage, view = Stage(tmp_path, SCENARIO), Shown()
    fabric = cast(Fabric, ReadableFabric())
    run = RunContext(stage.plan, stage.directory, stage.record, lambda: 0.0, cast(View, view))
    monitor = Monitor(run, stage.session, fabric, None)
    await stage.train()
    shown = []
    for node, values in [
        ("cloud", {"scope": "global", "accuracy": 0.75, "loss": 0.5}),
        ("edge-0", {"scope": "global", "accuracy": 0.25, "loss": 0.9}),
        ("cloud", {"scope": "train", "loss": 0.1}),
        ("cloud", {"scope": "global", "accuracy": 0.8}),
    ]:
        stage.control.say(node, "metric", round=1, values=values)
        await asyncio.sleep(1.0)
        monitor.show()
        shown.append((view.snapshot.value, view.snapshot.loss, view.snapshot.verdict))
    assert shown == [(0.75, 0.5, None)] * 3 + [(0.8, 0.5, None)]
    await stage.session.close()
    stage.record.close()
