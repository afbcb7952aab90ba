"""The kernel engine measured for as long as `benchmarks.fidelity` and `benchmarks.schedules` measure the other one."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.fidelity import CHAINS, DATAGRAMS, LOSSES, MESH, RATES, RTTS, SECONDS
from benchmarks.links import packets_per_second
from benchmarks.schedules import BASE, CHANGES, follow, send
from netem.measurement.intervals import binomial_range, design_effect
from netem.profile import GilbertElliott, LinkProfile
from tests.lab.inside.chance import EXACT, likely
from tests.lab.inside.stage import Stage
from tests.lab.inside.stream import stream
from tests.netem.traffic import PAYLOAD_SHARE, flows, goodput, round_trips

pytestmark = pytest.mark.long

Note = Callable[[str, object, object], None]
UP = ("device-0", "cloud")
MESHED = """\
name: mesh
algorithm: {{name: feelpgen, rounds: 1}}
model: cnn
topology: {{cloud: false, edges: {devices}, devices_per_edge: 1}}
links: {{edge-edge: {link}}}
"""


@pytest.mark.parametrize("milliseconds", RTTS)
def test_round_trip(stage: Stage, note: Note, milliseconds: int) -> None:
    asked = milliseconds / 1000
    stage.shape(*UP, LinkProfile(latency=asked / 2), LinkProfile(latency=asked / 2))
    times = round_trips(stage, *UP, 300)
    note("300 echoes (ms): shortest, longest", milliseconds, f"{times[0] * 1e3:.4f}, {times[-1] * 1e3:.4f}")
    assert times == pytest.approx([asked] * 300, abs=EXACT)


@pytest.mark.parametrize("mbit", RATES)
def test_rate(stage: Stage, note: Note, mbit: float) -> None:
    """The window holds a quarter of a second, the buffer more: measured is the link, not how Reno gets over a loss."""
    stage.shape(*UP, LinkProfile(rate=mbit * 1e6, buffer=1.0))
    window = int(min(mbit * 1e6 / 8 / 4, 4e6))
    found = goodput(stage, *UP, 1.5 * SECONDS, SECONDS / 2, window) / PAYLOAD_SHARE / 1e6
    note("TCP over 10 s (Mbit/s)", mbit, f"{found:.4f}")
    assert found == pytest.approx(mbit, rel=0.005)


def test_rate_and_delay(stage: Stage, note: Note) -> None:
    half = LinkProfile(rate=100e6, latency=0.05, buffer=0.1)
    stage.shape(*UP, half, half)
    found = goodput(stage, *UP, SECONDS, SECONDS / 2, window=2_000_000) / PAYLOAD_SHARE / 1e6
    note("TCP over 100 Mbit/s and 100 ms (Mbit/s)", 100, f"{found:.2f}")
    assert found == pytest.approx(100, rel=0.005)


@pytest.mark.parametrize("asked", [*LOSSES, *CHAINS], ids=str)
def test_loss(stage: Stage, note: Note, asked: float | GilbertElliott) -> None:
    profile = LinkProfile(loss=asked)
    stage.shape(*UP, profile)
    lost = stream(stage, *UP, count=DATAGRAMS, spacing=0).lost
    number = round(DATAGRAMS / design_effect(asked))
    low, high = (DATAGRAMS * count / number for count in likely(number, profile.mean_loss))
    least, most = (DATAGRAMS * count / number for count in binomial_range(number, profile.mean_loss))
    note(f"lost of {DATAGRAMS}, {profile.to_mapping()['loss']}", f"{least:.0f}..{most:.0f}", lost)
    assert low <= lost <= high


def test_all_to_all(shared: Stage, tmp_path: Path, note: Note) -> None:
    draw = random.Random(1)
    errors, outside = [], 0
    with Stage(MESH, tmp_path, tried=shared.tried, scenario=MESHED) as stage:
        edges = [node.name for node in stage.plan.nodes if node.name.startswith("edge-")]
        for name in edges:
            stage.attach(name)
        pairs = [(source, target) for source in edges for target in edges if source < target]
        ways = [way for pair in pairs for way in (pair, pair[::-1])]
        profiles = {
            way: LinkProfile(latency=draw.randrange(10, 400) / 1e4, loss=draw.choice((0.0, 0.02, 0.1))) for way in ways
        }
        for way, profile in profiles.items():
            stage.do(stage.fabric.change(*way, profile))
        for pair in pairs:
            times = round_trips(stage, *pair, 100, 0.002)
            asked = sum(profiles[way].latency for way in (pair, pair[::-1]))
            errors.append(max(abs(time - asked) for time in times))
        for way in ways:
            low, high = binomial_range(1000, profiles[way].mean_loss)
            outside += not low <= stream(stage, *way, count=1000, spacing=0, settle=0.1).lost <= high
    note(f"{len(errors)} round trips all to all: the most that one differs (us)", 0, f"{max(errors) * 1e6:.1f}")
    note(f"{len(ways)} losses of 1000 all to all: outside their 99 %", round(0.01 * len(ways), 1), outside)
    assert max(errors) < EXACT
    assert outside <= 6  # of 132 once in a hundred: more than 6 is one chance in 700


def test_a_thousand_changes(stage: Stage, note: Note) -> None:
    stage.shape(*UP, BASE, BASE)
    counted = {"sent": 0, "received": 0}
    stop = threading.Event()
    sender = threading.Thread(target=send, args=(stage, *UP, stop, counted))
    sender.start()
    try:
        lateness, changes = stage.do(follow(lambda profile: stage.fabric.change(*UP, profile)))
    finally:
        stop.set()
        sender.join()
    late = ", ".join(f"{1e3 * lateness.quantile(share):.2f}" for share in (0.5, 0.99))
    note(f"{changes} changes in 10 s: late by (ms), median and 99 %", 0, late)
    note(f"lost of {counted['sent']} meanwhile", 0, counted["sent"] - counted["received"])
    assert changes == CHANGES
    assert counted["sent"] == counted["received"]
    assert lateness.quantile(0.99) <= 0.003  # asyncio waits for whole milliseconds


@pytest.mark.real_time  # in virtual time a link without a rate carries any number of packets at one moment
def test_ceiling(stage: Stage, note: Note) -> None:
    one, sixteen = (flows(stage, *UP, number, 3.0) / 1e9 for number in (1, 16))
    note("unimpaired TCP, 1 and 16 flows (Gbit/s)", "", f"{one:.2f}, {sixteen:.2f}")
    note("small packets per second", "", f"{packets_per_second(stage, *UP):.0f}")
    assert min(one, sixteen) > 0
