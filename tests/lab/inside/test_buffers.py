"""Buffers of the kernel engine count bytes that wait for the rate, and nothing else: neither packets nor what is on its
way."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
import time
from collections.abc import Callable
from random import Random

import pytest

from netem.profile import FULL_FRAME, LinkProfile
from tests.lab.inside.chance import EXACT
from tests.lab.inside.stage import Stage
from tests.lab.inside.stream import stream
from tests.lab.inside.test_fabric import Background, wait_offered
from tests.netem.traffic import PAYLOAD_SHARE, goodput, segments_of_one_call

Note = Callable[[str, object, object], None]
UP = ("device-0", "cloud")
SIZE = 1200
FRAME = SIZE + 42  # bytes of Ethernet, IPv4 and UDP headers
BUFFER = 20_000
FITTING = BUFFER // FRAME  # 16
SLOW = LinkProfile(latency=0.01, rate=1e6, buffer_bytes=BUFFER)


def drops(stage: Stage) -> tuple[int, int]:
    """Packets that the link has lost at random, and those that found no room."""
    counters = stage.counters(*UP)
    return counters["lost"], counters["overflowed"]


def burst(stage: Stage, count: int = 40, size: int = SIZE) -> int:
    """Send packets at one moment: how many come. The others find no room."""
    lost, overflowed = drops(stage)
    sent = stream(stage, *UP, count=count, spacing=0, size=size, settle=1.3)
    arrived = sent.counts()["received"]
    lost_after, overflowed_after = drops(stage)
    assert lost_after == lost
    assert overflowed_after - overflowed == count - arrived
    return arrived


def test_readings_that_wait_for_the_latency_need_no_buffer(stage: Stage, note: Note) -> None:
    """40 readings of 60 bytes a second are 33 of 100 kbit/s. In a second of latency 40 are on their way."""
    stage.shape(*UP, LinkProfile(latency=1.0, rate=100e3))
    before = drops(stage)
    sent = stream(stage, *UP, count=120, spacing=0.025, size=60, settle=1.5)
    assert sent.lost == 0
    assert drops(stage) == before
    note("lost of 120 readings of 60 bytes over 1 s", 0, sent.lost)


@pytest.mark.parametrize("latency", [0.0, 0.01, 1.0])
def test_a_buffer_takes_its_bytes(stage: Stage, note: Note, latency: float) -> None:
    stage.shape(*UP, SLOW.merged(latency=latency))
    assert burst(stage) == FITTING
    note(f"40 datagrams into {BUFFER} bytes, latency {latency}", FITTING, FITTING)


def test_small_packets_fill_a_buffer_by_their_bytes(stage: Stage, note: Note) -> None:
    stage.shape(*UP, SLOW)
    arrived = burst(stage, 400, 60)
    assert arrived == BUFFER // 102  # netem alone takes 14 full frames
    note(f"400 packets of 102 bytes into {BUFFER} bytes", 196, arrived)


def test_segments_of_one_call_are_single_packets(stage: Stage, note: Note) -> None:
    stage.shape(*UP, SLOW)
    _, overflowed = drops(stage)
    began = time.time()
    times = [at - began for at in segments_of_one_call(stage, *UP, 40, SIZE)]
    assert len(times) == FITTING
    # Each needs 9.936 ms: the first comes after 20 ms, the last after 169.
    assert times == pytest.approx([0.01 + number * FRAME * 8 / 1e6 for number in range(1, FITTING + 1)], abs=EXACT)
    assert drops(stage)[1] - overflowed == 40 - FITTING
    note("40 datagrams of one call: arrived, last after (ms)", "16, 168.976", f"{len(times)}, {times[-1] * 1e3:.3f}")


def test_a_changed_buffer_counts_what_waits_at_the_change(stage: Stage, note: Note) -> None:
    """At 200 kbit/s a packet needs 49.7 ms."""
    slow = SLOW.merged(rate=200e3, latency=0.0, buffer_bytes=BUFFER)
    stage.shape(*UP, slow)
    _, overflowed = drops(stage)
    with stage.bound(UP[0], socket.SOCK_DGRAM) as near, stage.bound(UP[1], socket.SOCK_DGRAM) as far:
        far.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33), 1 << 20)
        for loss in range(5):  # a small loss each time, which changes the policer
            for _ in range(20):
                near.sendto(bytes(SIZE), far.getsockname())
            stage.do(stage.fabric.change(*UP, slow.merged(rate=200e3 - 8 * loss, buffer_bytes=BUFFER)))
    dropped = drops(stage)[1] - overflowed
    # With a full bucket after each change, all but 4 of each 20 would find room.
    assert 100 - FITTING - 12 <= dropped <= 100 - FITTING
    note("of 100 packets, without room while the rate is changed five times", "72..84", dropped)


def test_a_buffer_is_whole_again_when_it_is_empty(stage: Stage) -> None:
    stage.shape(*UP, SLOW)
    burst(stage, 5)
    with stage.bound(UP[0], socket.SOCK_DGRAM) as near:
        for _ in range(FITTING):
            near.sendto(bytes(SIZE), (stage.address(UP[1]), 9))
    stage.do(stage.fabric.change(*UP, SLOW.merged(rate=2e6, buffer_bytes=BUFFER)))
    deadline = time.monotonic() + 5
    while stage.state(*UP).backlog and time.monotonic() < deadline:
        time.sleep(0.02)
    stage.counters(*UP)  # reads what waits
    assert burst(stage) == FITTING


def test_a_slow_way_back_holds_its_acknowledgements(stage: Stage, note: Note) -> None:
    """256 kbit/s carry 485 acknowledgements of 66 bytes a second, each for at most two packets: 11.7 Mbit/s. A buffer
    that counted packets as full ones would drop most, and the others stand for more."""
    stage.shape(*UP, LinkProfile(latency=0.01, rate=20e6), LinkProfile(latency=0.01, rate=256e3))
    got = goodput(stage, *UP, seconds=4.0, skip=1.5) / PAYLOAD_SHARE
    note("an upload over 20 Mbit/s, 256 kbit/s back (Mbit/s)", "11.7", f"{got / 1e6:.2f}")
    assert got == pytest.approx(256e3 / (66 * 8) * 2 * FULL_FRAME * 8, rel=0.07)


def test_ipv6_fills_the_same_buffer(stage: Stage) -> None:
    stage.shape(*UP, SLOW)
    lost, overflowed = drops(stage)
    with stage.bound_to_ipv6(UP[0], socket.SOCK_DGRAM) as near, stage.bound_to_ipv6(UP[1], socket.SOCK_DGRAM) as far:
        for _ in range(40):
            near.sendto(bytes(SIZE), far.getsockname())
    lost_after, overflowed_after = drops(stage)
    assert lost_after == lost
    assert overflowed_after - overflowed == 25  # 1,262 bytes each: 15 fit


def test_losses_and_a_full_buffer_are_counted_apart(stage: Stage, note: Note) -> None:
    """At three times the rate a third of what is offered arrives. The loss changes what the policer must let pass."""
    stage.shape(*UP, LinkProfile(loss=0.1, rate=2e6, buffer_bytes=BUFFER))
    lost, overflowed = drops(stage)
    sent = stream(stage, *UP, count=1500, spacing=FRAME * 8 / 6e6, size=SIZE)
    random, full = drops(stage)
    arrived = sent.counts()["received"]
    assert random - lost + full - overflowed == 1500 - arrived
    # 500 while they are sent, and what the buffer holds then.
    assert arrived == pytest.approx(500 + FITTING, abs=25)
    passed = 1500 - (full - overflowed)
    assert (random - lost) / passed == pytest.approx(0.1, abs=0.05)
    longest = max(sent.delays)
    assert longest < 2 * BUFFER * 8 / 2e6
    note(
        "loss 10 % at 3 times the rate: arrived of 1500, longest wait (ms)",
        "516, 80",
        f"{arrived}, {longest * 1e3:.0f}",
    )


def test_a_higher_latency_needs_no_buffer(stage: Stage) -> None:
    """A fault or a schedule raises it while readings are sent."""
    stage.shape(*UP, LinkProfile(latency=0.01, rate=100e3))
    before, counted = drops(stage), stage.counters(*UP)["offered"]
    going = Background(stage, *UP, count=120, spacing=0.025, size=60, settle=1.5)
    wait_offered(stage, UP, {"offered": counted}, 30)
    stage.do(stage.fabric.change(*UP, LinkProfile(latency=1.0, rate=100e3)))
    assert going.result().lost == 0
    assert drops(stage) == before


def test_mixed_sizes_at_nine_tenths_of_the_rate_lose_nothing(stage: Stage) -> None:
    stage.shape(*UP, LinkProfile(latency=0.3, rate=1e6))
    draw = Random(1)
    before = drops(stage)
    with stage.bound(UP[0], socket.SOCK_DGRAM) as near:
        due = time.monotonic()
        for _ in range(300):
            size = draw.choice((40, 200, 1400))
            near.sendto(bytes(size), (stage.address(UP[1]), 9))
            due += (size + 42) * 8 / 0.9e6
            time.sleep(max(0.0, due - time.monotonic()))
    assert drops(stage) == before


def test_what_comes_to_a_cut_link_has_not_overflowed(stage: Stage) -> None:
    stage.shape(*UP, SLOW)
    before = stage.counters(*UP)
    stage.do(stage.fabric.cut(*UP))
    with stage.bound(UP[0], socket.SOCK_DGRAM) as near:
        for _ in range(60):
            near.sendto(bytes(SIZE), (stage.address(UP[1]), 9))
    after = stage.counters(*UP)
    assert after["overflowed"] == before["overflowed"]
    assert after["cut_dropped"] - before["cut_dropped"] == 60
    stage.do(stage.fabric.restore(*UP))
    assert burst(stage) == FITTING


def test_a_silent_link_lets_its_buffer_fill_once(stage: Stage) -> None:
    stage.shape(*UP, SLOW)
    silent = SLOW.merged(silence=1.0, buffer_bytes=BUFFER)
    stage.do(stage.fabric.change(*UP, silent))
    _, overflowed = drops(stage)
    with stage.bound(UP[0], socket.SOCK_DGRAM) as near:
        for _ in range(20):
            for _ in range(3):
                near.sendto(bytes(SIZE), (stage.address(UP[1]), 9))
            time.sleep(0.02)
    # In 0.4 s at 1 Mbit/s 40 would leave.
    assert drops(stage)[1] - overflowed == 60 - FITTING


def test_a_full_frame_passes_any_buffer(stage: Stage) -> None:
    stage.shape(*UP, LinkProfile(rate=1e6, buffer_bytes=0))
    sent = stream(stage, *UP, count=20, spacing=0.02, size=FULL_FRAME - 42)
    assert sent.lost == 0


def test_tcp_uses_a_rate_that_changes(stage: Stage, note: Note) -> None:
    """8 and 12 Mbit/s for half a second each. A buffer that stayed as small as the room at a change would drop the
    second packet of each acknowledgement."""
    profile = LinkProfile(latency=0.02, rate=8e6)
    stage.shape(*UP, profile, LinkProfile(latency=0.02))
    got: list[float] = []
    going = threading.Thread(target=lambda: got.append(goodput(stage, *UP, seconds=5.0, skip=1.0)))
    going.start()
    for number in itertools.count():
        if not going.is_alive():
            break
        stage.do(stage.fabric.change(*UP, profile.merged(rate=8e6 if number % 2 else 12e6)))
        stage.do(asyncio.sleep(0.5))  # in which the engine goes on
    note("TCP while the rate is 8 or 12 Mbit/s (Mbit/s)", 10, f"{got[0] / PAYLOAD_SHARE / 1e6:.2f}")
    assert got[0] / PAYLOAD_SHARE == pytest.approx(10e6, rel=0.02)
