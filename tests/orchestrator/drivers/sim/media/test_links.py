"""Links that share channels in a simulation: what their messages take, against times computed by hand."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from statistics import median
from typing import Any

import pytest

from benchmarks.simulated_media import Sending, seconds
from netem.media.profile import CROSS_TRAFFIC, ChannelProfile, Crossing, CrossTraffic
from netem.profile import FULL_FRAME, LinkProfile
from netem.tcp.flow import Flow
from netem.tcp.path import SEGMENT
from node.assignment import Timeouts
from node.messaging.delivery.pair import InFlight
from node.messaging.wire import Message
from orchestrator.drivers.sim.media.links import SharedFlow
from orchestrator.drivers.sim.virtual_fabric import ModelFabric
from orchestrator.errors import FabricError
from orchestrator.fabric.base import ChannelRow, LinkChange
from orchestrator.planning.plan import LinkPlan
from tests.virtual import virtual

CELL, OTHER = "cell-0 up", "cell-1 up"
PRIVATE = LinkProfile(latency=0.005)


def wire_seconds(size: int, rate: float) -> float:
    """The time of so many bytes of messages with headers at a rate."""
    return 8 * size / SEGMENT * FULL_FRAME / rate


class Cell:
    """A fabric of devices that send to the cloud, and when their latest messages have arrived."""

    def __init__(self) -> None:
        self.fabric = ModelFabric(Timeouts())
        self.loop = asyncio.get_running_loop()
        self.arrived: dict[str, float] = {}
        self.more = asyncio.Event()
        self.fabric.network.endpoints["cloud"] = self  # type: ignore[assignment]

    def arrive(self, source: str, in_flight: InFlight) -> None:
        self.arrived[source] = self.loop.time()
        self.more.set()

    async def link(self, device: str, *channels: str, profile: LinkProfile = PRIVATE, seed: int = 1) -> None:
        crossings = tuple(Crossing(channel, device) for channel in channels)
        there = LinkPlan(device, "cloud", "", profile, seed, crossings=crossings)
        await self.fabric.shape([there, LinkPlan("cloud", device, "", LinkProfile(latency=profile.latency), 2)])

    def send(self, device: str, size: int) -> None:
        network = self.fabric.network
        network.line(device, "cloud").send(network.in_flight(Message("model", device), size))

    def flow(self, device: str) -> SharedFlow:
        flow = self.fabric._flows[device, "cloud"]
        assert isinstance(flow, SharedFlow)
        return flow

    async def until(self, *devices: str) -> None:
        while not set(devices) <= self.arrived.keys():
            self.more.clear()
            await self.more.wait()

    async def rows(self) -> dict[tuple[str, str], ChannelRow]:
        counted = await self.fabric.counters()
        return {(str(row["channel"]), str(row["member"])): row for row in counted.channels}


@pytest.mark.parametrize("rule", ["fifo", "fair", "airtime", "frames"])
@virtual
async def test_uploads_at_once_end_when_the_rate_says(rule: Any) -> None:
    cell = Cell()
    await cell.fabric.share({CELL: ChannelProfile(20e6, rule)})
    devices = [f"device-{n}" for n in range(10)]
    for device in devices:
        await cell.link(device, CELL)
        cell.send(device, 3_000_000)
    await cell.until(*devices)
    assert max(cell.arrived.values()) == pytest.approx(wire_seconds(30_000_000, 20e6), rel=0.01)
    rows = await cell.rows()
    assert sum(int(row["bytes"]) for row in rows.values()) >= 30_000_000 * FULL_FRAME / SEGMENT
    assert sum(float(row["seconds"]) for row in rows.values()) <= max(cell.arrived.values())
    assert {row["queued_bytes"] for row in rows.values()} == {0}


@pytest.mark.parametrize(("rule", "slow", "fast"), [("frames", 4.909e6, 4.909e6), ("airtime", 2e6, 18e6)])
@virtual
async def test_members_of_different_rates_share_by_the_rule(rule: Any, slow: float, fast: float) -> None:
    cell = Cell()
    await cell.fabric.share({CELL: ChannelProfile(54e6, rule, rates={"device-2": 6e6})})
    for n in range(3):
        await cell.link(f"device-{n}", CELL)
        cell.send(f"device-{n}", 100_000_000)
    await asyncio.sleep(2.0)
    before = await cell.rows()
    await asyncio.sleep(10.0)
    after = await cell.rows()
    rates = [
        0.8 * (int(after[key]["bytes"]) - int(before[key]["bytes"]))
        for key in ((CELL, f"device-{n}") for n in range(3))
    ]
    assert rates == pytest.approx([fast, fast, slow], rel=0.01)
    busy = sum(float(after[key]["seconds"]) - float(before[key]["seconds"]) for key in after)
    assert busy == pytest.approx(10.0, rel=0.01)


@virtual
async def test_a_link_that_stops_leaves_its_share_to_the_others() -> None:
    cell = Cell()
    await cell.fabric.share({CELL: ChannelProfile(20e6)})
    for device, size in (("short", 1_000_000), ("long", 3_000_000)):
        await cell.link(device, CELL)
        cell.send(device, size)
    await cell.until("short", "long")
    assert cell.arrived["short"] == pytest.approx(wire_seconds(2_000_000, 20e6), rel=0.04)
    assert cell.arrived["long"] == pytest.approx(wire_seconds(4_000_000, 20e6), rel=0.03)


@virtual
async def test_what_a_small_window_does_not_use_goes_to_the_others() -> None:
    """Six links in slow start over 200 ms never use their shares of 100 Mbit/s."""
    cell = Cell()
    await cell.fabric.share({CELL: ChannelProfile(100e6)})
    await cell.link("long", CELL)
    cell.send("long", 10_000_000)
    for n in range(6):
        await cell.link(f"far-{n}", CELL, profile=LinkProfile(latency=0.1))
        cell.send(f"far-{n}", 100_000)
    await cell.until("long")
    assert cell.arrived["long"] < 1.4 * wire_seconds(10_000_000, 100e6)


@virtual
async def test_other_channels_are_isolated() -> None:
    async def alone(others: int) -> float:
        cell = Cell()
        await cell.fabric.share({CELL: ChannelProfile(20e6), OTHER: ChannelProfile(20e6)})
        for n in range(others):
            await cell.link(f"other-{n}", OTHER)
            cell.send(f"other-{n}", 10_000_000)
        await cell.link("device-0", CELL)
        cell.send("device-0", 1_000_000)
        await cell.until("device-0")
        return cell.arrived["device-0"]

    one = await alone(0)  # from the start of the clock
    assert await alone(5) - one == pytest.approx(one, abs=1e-6)


@virtual
async def test_a_link_through_two_channels_gets_the_narrower_share() -> None:
    cell = Cell()
    await cell.fabric.share({CELL: ChannelProfile(20e6), OTHER: ChannelProfile(12e6)})
    await cell.link("both", CELL, OTHER)
    await cell.link("first", CELL)
    await cell.link("second", OTHER)
    for device in ("both", "first", "second"):
        cell.send(device, 50_000_000)
    await asyncio.sleep(11.0)
    rates = {key: 8 * int(row["bytes"]) / 11 for key, row in (await cell.rows()).items()}
    assert rates[CELL, "both"] == rates[OTHER, "both"] == pytest.approx(6e6, rel=0.02)
    assert rates[CELL, "first"] == pytest.approx(14e6, rel=0.02)
    assert rates[OTHER, "second"] == pytest.approx(6e6, rel=0.02)


@virtual
async def test_cross_traffic_takes_its_mean_rate_and_ends() -> None:
    cell = Cell()
    await cell.fabric.share({CELL: ChannelProfile(100e6)})
    await cell.link("device-0", CELL)
    await cell.fabric.occupy(CELL, CrossTraffic("poisson", 30e6), 7)
    cell.send("device-0", 1_000_000_000)
    await asyncio.sleep(2.0)
    before = await cell.rows()
    await asyncio.sleep(10.0)
    after = await cell.rows()
    gained = {member: int(after[CELL, member]["bytes"]) - int(before[CELL, member]["bytes"]) for _, member in after}
    assert 0.8 * gained["device-0"] == pytest.approx(70e6, rel=0.01)
    assert 0.8 * gained[CROSS_TRAFFIC] == pytest.approx(30e6, rel=0.01)
    await cell.fabric.occupy(CELL, None)
    await asyncio.sleep(2.0)
    last = await cell.rows()
    assert 4 * (int(last[CELL, "device-0"]["bytes"]) - int(after[CELL, "device-0"]["bytes"])) > 95e6
    assert last[CELL, CROSS_TRAFFIC]["bytes"] == after[CELL, CROSS_TRAFFIC]["bytes"]


@pytest.mark.parametrize(
    ("traffic", "rate"),
    [
        (CrossTraffic("on-off", 6e6, 0.5, 0.5), 7e6),
        (CrossTraffic("trace", rows=((5.0, 8e6),)), 7.5e6),  # at most the fair share of 5 Mbit/s, half of the time
        (CrossTraffic("constant", 8e6), 5e6),
    ],
)
@virtual
async def test_cross_traffic_changes_and_gets_its_fair_share_at_most(traffic: CrossTraffic, rate: float) -> None:
    cell = Cell()
    await cell.fabric.share({CELL: ChannelProfile(10e6)})
    await cell.link("device-0", CELL)
    cell.send("device-0", 100_000_000)
    await cell.fabric.occupy(CELL, traffic, 7)
    seconds = 100.0 if traffic.kind == "on-off" else 10.0
    await asyncio.sleep(seconds)
    got = 8 * int((await cell.rows())[CELL, "device-0"]["bytes"]) / seconds
    assert got == pytest.approx(rate, rel=0.1)


@virtual
async def test_a_handover_continues_at_the_rate_of_the_new_cell() -> None:
    cell = Cell()
    await cell.fabric.share({CELL: ChannelProfile(20e6), OTHER: ChannelProfile(10e6)})
    await cell.link("device-0", CELL)
    cell.send("device-0", 5_000_000)
    await asyncio.sleep(1.0)
    await cell.fabric.alter([LinkChange("device-0", "cloud", crossings=(Crossing(OTHER, "device-0"),))])
    await cell.until("device-0")
    rows = await cell.rows()
    first, second = (int(rows[channel, "device-0"]["bytes"]) for channel in (CELL, OTHER))
    assert 8 * first == pytest.approx(20e6, rel=0.05)
    assert first + second == pytest.approx(5_000_000 * FULL_FRAME / SEGMENT, rel=0.02)
    assert cell.arrived["device-0"] == pytest.approx(1 + 8 * second / 10e6, abs=0.1)


@virtual
async def test_a_channel_may_be_degraded_and_a_link_cut_during_a_transfer() -> None:
    cell = Cell()
    await cell.fabric.share({CELL: ChannelProfile(20e6)})
    for device in ("device-0", "device-1"):
        await cell.link(device, CELL)
        cell.send(device, 5_000_000)
    await asyncio.sleep(1.0)
    await cell.fabric.share({CELL: ChannelProfile(10e6)})
    await cell.fabric.cut("device-1", "cloud")
    await cell.until("device-0")
    left = wire_seconds(5_000_000, 1.0) - 10e6
    assert cell.arrived["device-0"] == pytest.approx(1 + left / 10e6, rel=0.03)
    assert "device-1" not in cell.arrived
    await cell.fabric.restore("device-1", "cloud")
    await cell.until("device-1")


@virtual
async def test_a_connection_that_would_give_up_continues_when_its_share_grows() -> None:
    """Cross traffic leaves four lossy links 1 % of the channel for 2 s: with that they would never get through."""
    cell = Cell()
    devices = [f"device-{n}" for n in range(4)]
    await cell.fabric.share({CELL: ChannelProfile(2e6, "fifo")})
    for seed, device in enumerate(devices):
        await cell.link(device, CELL, profile=LinkProfile(latency=0.02, loss=0.01), seed=seed)
        cell.send(device, 50_000)
    await asyncio.sleep(0.3)
    await cell.fabric.occupy(CELL, CrossTraffic("constant", 3e6))
    await asyncio.sleep(2.0)
    assert math.inf in [cell.flow(device).flow.leaves() for device in devices]
    await cell.fabric.occupy(CELL, None)
    async with asyncio.timeout(20.0):
        await cell.until(*devices)


@virtual
async def test_the_counters_of_a_channel_never_fall() -> None:
    cell = Cell()
    await cell.fabric.share({CELL: ChannelProfile(2e6, buffer=0.2)})
    await cell.link("device-0", CELL, profile=LinkProfile(latency=0.02, loss=0.02))
    cell.send("device-0", 400_000)
    before = await cell.rows()
    for step in range(200):
        if step in (50, 150):
            await cell.fabric.cut("device-0", "cloud")
        if step == 100:
            await cell.fabric.restore("device-0", "cloud")
        after = await cell.rows()
        for row in after.values():
            earlier = before.get((CELL, "device-0"), row)
            assert all(float(row[name]) >= float(earlier[name]) for name in ("packets", "bytes", "seconds"))
        before = after
        await asyncio.sleep(0.01)
    assert int(before[CELL, "device-0"]["packets"]) > 100


@virtual
async def test_what_waits_for_the_rate_of_the_link_itself_does_not_wait_in_the_channel() -> None:
    cell = Cell()
    await cell.fabric.share({CELL: ChannelProfile(100e6)})
    await cell.link("device-0", CELL, profile=LinkProfile(latency=0.05, rate=3e6, buffer=0.1))
    cell.send("device-0", 1_000_000)
    queued = []
    for _ in range(40):
        await asyncio.sleep(0.05)
        queued.append((await cell.rows())[CELL, "device-0"]["queued_bytes"])
    row = (await cell.rows())[CELL, "device-0"]
    assert cell.flow("device-0").flow.counted(cell.loop.time()).overflowed > 0
    assert (row["overflowed"], set(queued)) == (0, {0})


@virtual
async def test_a_silent_link_claims_nothing_and_its_silence_ends_on_time() -> None:
    cell = Cell()
    await cell.fabric.share({CELL: ChannelProfile(20e6)})
    for device in ("silent", "other"):
        await cell.link(device, CELL)
        cell.send(device, 2_000_000)
    await cell.fabric.change("silent", "cloud", LinkProfile(latency=0.005, silence=0.5))
    await asyncio.sleep(0.25)
    await cell.fabric.change("cloud", "silent", LinkProfile(latency=0.006))  # does not begin the silence anew
    await asyncio.sleep(0.25)
    rows = await cell.rows()
    assert int(rows[CELL, "silent"]["bytes"]) == 0
    assert 16 * int(rows[CELL, "other"]["bytes"]) == pytest.approx(20e6, rel=0.1)
    await cell.fabric.change("silent", "cloud", PRIVATE)
    await cell.until("silent", "other")
    assert max(cell.arrived.values()) == pytest.approx(wire_seconds(4_000_000, 20e6), rel=0.05)


@virtual
async def test_a_message_waits_in_the_full_queue_of_a_fifo_but_not_of_a_fair_channel() -> None:
    async def waits(rule: Any) -> float:
        cell = Cell()
        await cell.fabric.share({CELL: ChannelProfile(20e6, rule, 0.2)})
        for device in ("device-0", "device-1", "idle"):
            await cell.link(device, CELL)
        cell.send("device-0", 10_000_000)
        cell.send("device-1", 10_000_000)
        await asyncio.sleep(2.0)
        began = cell.loop.time()
        cell.send("idle", 100)
        await cell.until("idle")
        return cell.arrived["idle"] - began

    assert await waits("fifo") == pytest.approx(0.175, abs=0.01)
    assert await waits("fair") < 0.01


@virtual
async def test_short_round_trips_get_more_of_a_fifo() -> None:
    cell = Cell()
    await cell.fabric.share({CELL: ChannelProfile(20e6, "fifo")})
    for latency in (0.005, 0.025, 0.05):
        await cell.link(f"{latency}", CELL, profile=LinkProfile(latency=latency))
        cell.send(f"{latency}", 3_000_000)
    await cell.until("0.005", "0.025", "0.05")
    order = sorted(cell.arrived, key=cell.arrived.__getitem__)
    assert order == ["0.005", "0.025", "0.05"]
    assert median(cell.arrived.values()) > 1.5 * cell.arrived["0.005"]


@virtual
async def test_a_link_through_an_unknown_channel_is_refused() -> None:
    cell = Cell()
    await cell.fabric.share({CELL: ChannelProfile(20e6)})
    with pytest.raises(FabricError, match=r"link device-0 -> cloud.*'cell-1"):
        await cell.link("device-0", OTHER)
    await cell.link("device-0", CELL)
    (error,) = await cell.fabric.alter([LinkChange("device-0", "cloud", crossings=(Crossing(OTHER, "device-0"),))])
    assert isinstance(error, FabricError)


@pytest.mark.slow
def test_links_are_not_computed_again_for_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    made, reshape = Counter[int](), Flow.reshape

    def counted(flow: Flow, *arguments: Any) -> list[float]:
        made[number] += 1
        return reshape(flow, *arguments)

    monkeypatch.setattr(Flow, "reshape", counted)
    for number in (50, 200):
        sendings = [Sending(f"device-{n}", 40_000, (CELL,), at=0.002 * n) for n in range(number)]
        seconds({CELL: ChannelProfile(20e6)}, sendings)
    assert made[200] < 8 * made[50]  # their square would be 16 times as many
