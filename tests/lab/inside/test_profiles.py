"""Settings of a profile by their measured effect, on links made by the kernel engine. What is chance, such as losses,
duplicates and jitter, is measured in `test_same_fates.py`.

Traffic goes from the cloud to device-0, whose device has one link, or the other way, into a device shared by two.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from netem.kernel import tc
from netem.measurement.tally import UDP_HEADERS, arrival_rate
from netem.profile import FULL_FRAME, GilbertElliott, LinkProfile
from tests.lab.inside.chance import EXACT, likely
from tests.lab.inside.stage import Stage
from tests.lab.inside.stream import stream
from tests.netem.traffic import round_trips

Note = Callable[[str, object, object], None]
UP = ("device-0", "cloud")
DOWN = ("cloud", "device-0")
FULL = FULL_FRAME - UDP_HEADERS  # payload of a full frame


@pytest.mark.parametrize("milliseconds", [1, 2, 10, 50, 100, 200])
def test_round_trip(stage: Stage, note: Note, milliseconds: int) -> None:
    asked = milliseconds / 1000
    stage.shape(*UP, LinkProfile(latency=asked / 2), LinkProfile(latency=asked / 2))
    times = round_trips(stage, *UP, 30)
    assert times == pytest.approx([asked] * 30, abs=EXACT)
    note("the longest of 30 round trips (ms)", milliseconds, f"{max(times) * 1000:.4f}")


def test_each_way_has_its_own_latency(stage: Stage, note: Note) -> None:
    stage.shape(*UP, LinkProfile(latency=0.005), LinkProfile(latency=0.02, rate=5e6))
    for way, asked in ((UP, 0.005), (DOWN, 0.02 + 102 * 8 / 5e6)):  # 60 bytes are a frame of 102
        delays = stream(stage, *way, count=60).delays
        assert delays == pytest.approx([asked] * 60, abs=EXACT)
        note("one way, the longest of 60 (ms)", f"{asked * 1000:.3f}", f"{max(delays) * 1000:.4f}")


@pytest.mark.parametrize("mbit", [0.25, 1, 5, 20])
def test_rate(stage: Stage, note: Note, mbit: float) -> None:
    asked = mbit * 1e6
    size = FULL if mbit >= 1 else 600
    bits = (size + UDP_HEADERS) * 8
    count = max(60, int(asked / bits * 0.5))  # half a second of the link, sent 1.5 times as fast
    stage.shape(*UP, LinkProfile(rate=asked, buffer=2.0))
    arrivals = stream(stage, *UP, count=count, spacing=bits / asked / 1.5, size=size, settle=0.2).arrivals
    got = arrival_rate([arrival.time for arrival in arrivals], bits)
    assert got is not None
    assert got == pytest.approx(asked, rel=1e-5)
    note("rate (Mbit/s)", mbit, f"{got / 1e6:.5f}")


def test_a_full_buffer_drops(stage: Stage, note: Note) -> None:
    stage.shape(*UP, LinkProfile(rate=1e6, buffer_bytes=20 * FULL_FRAME))
    before = stage.counters(*UP)
    arrived = stream(stage, *UP, count=60, spacing=0, size=FULL).counts()["received"]
    assert arrived == 20
    after = stage.counters(*UP)
    assert after["overflowed"] - before["overflowed"] == 60 - arrived
    assert after["lost"] == before["lost"]
    note("burst of 60 into a buffer of 20", 20, arrived)


def test_a_long_fat_link_holds_what_is_on_its_way(stage: Stage, note: Note) -> None:
    profile = LinkProfile(rate=20e6, latency=0.5)
    stage.shape(*UP, profile)
    # 20 Mbit/s x 0.5 s = 1.25 MB are 825.6 full frames; the buffer of two latencies holds 1651.3 more.
    sent = stream(stage, *UP, count=1500, spacing=0.0004, size=FULL, settle=0.8)  # 30 Mbit/s
    # 0.6 s have been sent and 0.1 s have arrived: some 1300 were in the queue at once.
    assert sent.lost == 0
    note("lost of 1500 at 20 Mbit/s, 500 ms (tc's own limit is 1000)", 0, sent.lost)


def test_a_burst_into_100_mbit_at_100_ms(stage: Stage, note: Note) -> None:
    profile = LinkProfile(rate=100e6, latency=0.1)
    stage.shape(*UP, profile)
    # The buffer of 200 ms holds 2.5 MB, 1651 frames.
    sent = stream(stage, *UP, count=1500, spacing=0, size=FULL)
    assert sent.lost == 0
    note("lost of 1500 at 100 Mbit/s, 100 ms", 0, sent.lost)


def test_corruption_is_found_by_the_checksum(stage: Stage, note: Note) -> None:
    stage.shape(*UP, LinkProfile(corrupt=0.25))
    before = checksum_errors(stage, "cloud")
    lost = stream(stage, *UP, count=1000, spacing=0.0005).lost
    low, high = likely(1000, 0.25)
    assert low <= lost <= high
    # A bit flipped in the IP header, 20 of the 102 - 14 bytes behind Ethernet's, or in the ports and the length of
    # UDP's is found otherwise than by UDP's checksum; one in Ethernet's header makes the packet somebody else's.
    assert 0.5 * lost < checksum_errors(stage, "cloud") - before <= lost
    note("corrupt of 1000", f"{low}..{high}", lost)


def test_without_reorder_the_order_is_kept(stage: Stage) -> None:
    stage.shape(*UP, LinkProfile(latency=0.005, jitter=0.005, loss=0.02, rate=10e6))
    counts = stream(stage, *UP, count=1000, spacing=0.0005).counts()
    assert counts["reordered"] == counts["duplicated"] == 0
    assert counts["received"] > 900


def random_profile(draw: Random) -> LinkProfile:
    loss = GilbertElliott(p=draw.random(), r=0.01 + 0.99 * draw.random(), loss_bad=draw.random())
    return LinkProfile(
        latency=10 ** draw.uniform(-4, 0.7),
        jitter=draw.choice([0.0, 10 ** draw.uniform(-4, 0)]),
        distribution=draw.choice(["normal", "uniform", "pareto"]),
        loss=draw.choice(list[float | GilbertElliott]([0.0, draw.random(), loss])),
        rate=draw.choice([None, 10 ** draw.uniform(4, 10)]),
        duplicate=draw.choice([0.0, draw.random()]),
        corrupt=draw.choice([0.0, draw.random()]),
        reorder=draw.choice([0.0, draw.random()]),
    )


def test_what_was_configured_is_read_back(stage: Stage) -> None:
    draw = Random(1)
    for _ in range(15):
        profile = random_profile(draw)
        stage.do(stage.fabric.change(*DOWN, profile))  # raises FabricError if anything differs
    assert tc.compare(profile, stage.state(*DOWN)) == []


def checksum_errors(stage: Stage, node: str) -> int:
    lines = [line.split() for line in stage.nodes[node].run("cat", "/proc/net/snmp").splitlines()]
    names, values = (line for line in lines if line[0] == "Udp:")
    return int(values[names.index("InCsumErrors")])
