"""Clients of a population that share channels: against times by hand, the model of single links, and whole runs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import pytest

from benchmarks.client_media import cost
from benchmarks.simulated_media import Sending, seconds
from netem.media.profile import RULES, ChannelProfile, Crossing, Rule
from netem.profile import FULL_FRAME, LinkProfile
from netem.tcp.path import SEGMENT
from node.assignment import Timeouts
from node.messaging.wire import Message
from node.runtime.clock import run_virtual
from orchestrator.drivers.sim.virtual_fabric import ModelFabric
from orchestrator.fabric.base import ChannelRow
from orchestrator.population.population import LinkShare, Ways
from orchestrator.results.traffic.volumes import link_counters
from tests.orchestrator.drivers.sim.harness import Simulated, simulate

SIZE = 500_000
WIRE = 8 * SIZE / SEGMENT * FULL_FRAME  # bits
CELL = ("cell up",)


def clients(channel: ChannelProfile, sendings: list[Sending]) -> list[float]:
    return seconds({"cell up": channel}, sendings, clients=True)


@pytest.mark.parametrize("rule", RULES)
def test_uploads_at_once_end_when_the_rate_says(rule: Rule) -> None:
    found = clients(ChannelProfile(20e6, rule), [Sending(f"device-{n}", SIZE, CELL) for n in range(20)])
    assert max(found) == pytest.approx(20 * WIRE / 20e6 + 0.005, rel=0.01)
    if rule != "fifo":
        assert min(found) == pytest.approx(max(found), rel=0.01)


def test_a_client_alone_takes_as_long_as_a_node() -> None:
    for rate in (None, 5e6):
        sendings = [Sending("device-0", SIZE, CELL, 0.05, rate=rate)]
        (alone,) = seconds({"cell up": ChannelProfile(20e6)}, sendings)
        assert clients(ChannelProfile(20e6), sendings) == [pytest.approx(alone, rel=1e-6)]


def test_what_a_slow_link_does_not_use_the_others_get() -> None:
    sendings = [Sending("device-0", SIZE, CELL, rate=1e6), Sending("device-1", 10 * SIZE, CELL)]
    slow, fast = clients(ChannelProfile(20e6), sendings)
    assert slow == pytest.approx(WIRE / 1e6, rel=0.02)
    assert fast == pytest.approx(10 * WIRE / 19e6, rel=0.05)


def test_a_transfer_that_comes_later_halves_the_rate_from_then_on() -> None:
    sendings = [Sending("device-0", 4 * SIZE, CELL), Sending("device-1", 4 * SIZE, CELL, at=0.4)]
    first, second = clients(ChannelProfile(20e6), sendings)
    assert first == pytest.approx(0.4 + 2 * (4 * WIRE / 20e6 - 0.4), rel=0.03)
    assert 0.4 + second == pytest.approx(8 * WIRE / 20e6, rel=0.02)


def test_two_channels_on_the_way() -> None:
    channels = {"cell up": ChannelProfile(20e6), "uplink up": ChannelProfile(10e6)}
    ways = [("cell up", "uplink up")] * 4 + [("cell up",)]
    sendings = [Sending(f"device-{n}", SIZE, way) for n, way in enumerate(ways)]
    *behind, beside = seconds(channels, sendings, clients=True)
    assert max(behind) == pytest.approx(4 * WIRE / 10e6, rel=0.02)
    assert beside == pytest.approx(WIRE / 10e6, rel=0.1)


@pytest.mark.parametrize("loss", [0.0, 0.001])
@pytest.mark.parametrize(("rate", "then"), [(1e6, 20e6), (20e6, 1e6)])
def test_what_is_on_its_way_follows_a_change_of_the_channel(rate: float, then: float, loss: float) -> None:
    change = 1.0, {"cell up": ChannelProfile(then)}
    for number in (1, 3):
        sendings = [Sending(f"device-{n}", 10 * SIZE, CELL, loss=loss) for n in range(number)]
        links, found = (
            seconds({"cell up": ChannelProfile(rate)}, sendings, clients=clients, change=change)
            for clients in (False, True)
        )
        # With losses, a client's rate is the mean of its whole transfer, also after the change.
        assert max(found) == pytest.approx(max(links), rel=0.07 if loss else 0.03)


def test_a_transfer_that_is_dropped_has_used_its_channel() -> None:
    async def used() -> list[ChannelRow]:
        fabric, own = ModelFabric(Timeouts()), LinkProfile(latency=0.005)
        await fabric.share({"cell up": ChannelProfile(8e6)})
        ways: Ways = ((Crossing("cell up", "device-0"),), ())
        fabric.admit("device-0", "cloud", LinkShare("", 1.0, own, own), ways, 1, 1)
        line = fabric.network.line("device-0", "cloud")
        line.send(fabric.network.in_flight(Message("model", "device-0"), 10 * SIZE))
        await asyncio.sleep(1.9)
        line.open()
        return list((await fabric.counters()).channels)

    (row,) = run_virtual(used())
    assert row["bytes"] == pytest.approx(1.9e6, rel=0.05)


def test_clients_that_send_fill_the_buffer_of_their_channel() -> None:
    async def queued(size: int) -> int:
        fabric, own = ModelFabric(Timeouts()), LinkProfile(latency=0.005)
        await fabric.share({"cell up": ChannelProfile(8e6)})
        for number in range(10):
            device = f"device-{number}"
            fabric.admit(device, "cloud", LinkShare("", 1.0, own, own), ((Crossing("cell up", device),), ()), number, 1)
            fabric.network.line(device, "cloud").send(fabric.network.in_flight(Message("model", device), size))
        await asyncio.sleep(0.5)
        return sum(int(row["queued_bytes"]) for row in (await fabric.counters()).channels)

    assert 50_000 < run_virtual(queued(SIZE)) <= 100_000
    assert run_virtual(queued(20_000)) == 0  # all sent


def test_staggered_transfers_are_near_the_model_of_single_links() -> None:
    sendings = [Sending(f"device-{n}", SIZE, CELL, 0.02, at=0.19 * n) for n in range(30)]
    for channel, tolerance in ((ChannelProfile(20e6, "fair"), 0.05), (ChannelProfile(20e6, "fifo"), 0.25)):
        links = seconds({"cell up": channel}, sendings)
        assert median(clients(channel, sendings)) == pytest.approx(median(links), rel=tolerance), channel.share


def lines_for(number: int) -> int:
    """How many lines of Python a round of so many clients executes: the same each time, however busy the host is."""
    lines = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        if event == "line":
            lines += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        cost(number)
    finally:
        sys.settrace(before)
    return lines


def test_more_clients_cost_in_proportion() -> None:
    few, many = lines_for(250), lines_for(1000)
    # Four times the clients, twice as often two of them at the same time: measured 5.0. All pairs would be 16.
    assert 4 * few < many < 6 * few


SCENARIO = """\
name: crowd
seed: 3
algorithm: {name: fedavg, rounds: 3, learning_rate: 0.1, batch_size: 10}
data: {dataset: digits, partition: iid, samples_per_client: 20}
model: {name: mlp, hidden: 128}
topology: {population: 500, selected: 20}
links: {device-cloud: {latency: 10ms}}
"""
CELLS = """\
shared:
  cell-0: {up: 2mbit, down: 4mbit, members: [device-*0, device-*2, device-*4]}
  cell-1: {rate: 4mbit, duplex: half, members: [device-*1, device-*3], share: fifo}
  uplink: {rate: 20mbit, members: ["device-* <-> cloud"]}
"""


def carried(run: Simulated) -> dict[str, tuple[float, float]]:
    """The bytes of each channel, and the seconds that it was occupied."""
    found: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for _, channel, member, _, size, occupied, *_ in run.record()["channel"]:
        assert member in ("population", "cross traffic")
        found[channel][0] += size
        found[channel][1] += occupied
    return {channel: (size, occupied) for channel, (size, occupied) in found.items()}


def test_rounds_last_as_long_as_the_cell_is_busy(tmp_path: Path) -> None:
    shared = "shared: {cell: {up: 1mbit, down: 4mbit, members: [device-*]}}\n"
    run, own = simulate(tmp_path, SCENARIO + shared), simulate(tmp_path, SCENARIO)
    assert (run.code, run.summary["verdict"]) == (0, "pass"), run.errors
    busy = sum(occupied for _, occupied in carried(run).values())
    assert run.summary["seconds"] - own.summary["seconds"] == pytest.approx(busy, rel=0.05)
    assert run.summary["accuracy"] == own.summary["accuracy"]
    (up, _), (down, _) = carried(run)["cell up"], carried(run)["cell down"]
    with run.history() as history:
        links = {each.source: each.delivered_bytes for each in link_counters(history)}
    assert up == pytest.approx(links["population"], rel=0.01)
    assert down == pytest.approx(links["cloud"], rel=0.01)


def test_clients_in_cells_behind_an_uplink_give_an_equal_record(tmp_path: Path) -> None:
    more = """\
cross_traffic: [{on: uplink, kind: on-off, rate: 10mbit, on_for: 100ms, off_for: 100ms, for: 2s}]
faults: [{at: 1s, action: degrade, medium: cell-0, rate: 500kbit, for: 1s}]
"""
    one, other = (simulate(tmp_path, SCENARIO + CELLS + more) for _ in range(2))
    assert (one.code, one.summary["verdict"], one.summary["rounds"]) == (0, "pass", 3), one.errors
    assert one.record() == other.record()
    found = carried(one)
    assert found.keys() == {"cell-0 up", "cell-0 down", "cell-1", "uplink up", "uplink down"}
    with one.history() as history:
        names = [each.data["client"] for each in history.events("client")]
    inside = sum(name[-1] in "024" for name in names) / sum(name[-1] in "01234" for name in names)
    cells = found["cell-0 up"][0] + found["cell-0 down"][0], found["cell-1"][0]
    assert cells[0] / sum(cells) == pytest.approx(inside, rel=0.01)
    plan = json.loads((one.directory / "plan.json").read_text())
    assert plan["media"][0]["members"] == ["device-*0", "device-*2", "device-*4"]


def test_an_asynchronous_population_shares_a_cell(tmp_path: Path) -> None:
    scenario = "plugins: [edgebed.baselines.fedbuff]\n" + SCENARIO.replace(
        "{name: fedavg, rounds: 3", "{name: fedbuff, rounds: 6, buffer: 5"
    )
    run = simulate(tmp_path, scenario + CELLS)
    assert (run.code, run.summary["verdict"]) == (0, "pass"), run.errors


def test_a_cloud_that_crashes_drops_what_is_on_its_way(tmp_path: Path) -> None:
    scenario = SCENARIO + CELLS + "faults: [{at: 2500ms, node: cloud, action: crash, for: 1s}]\n"
    run = simulate(tmp_path, scenario)
    assert (run.code, run.summary["rounds"]) == (0, 3), run.errors
