"""The kernel engine's verbs on a real kernel: change, cut, restore, restart, counters; and two hundred peers."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netem.measurement.tally import UDP_HEADERS
from netem.profile import FULL_FRAME, GilbertElliott, LinkProfile
from orchestrator.errors import FabricError, HostError
from tests.lab.inside.chance import EXACT, likely
from tests.lab.inside.stage import Stage
from tests.lab.inside.stream import Stream, stream

Note = Callable[[str, object, object], None]
UP = ("device-0", "cloud")
DOWN = ("cloud", "device-0")
FULL = FULL_FRAME - UDP_HEADERS
COUNTERS = ("offered", "delivered", "lost", "cut_dropped")


class Background:
    """A stream that goes on while the test does something else."""

    def __init__(self, stage: Stage, source: str, target: str, **options: Any) -> None:
        self._result: list[Stream] = []
        self._thread = threading.Thread(target=lambda: self._result.append(stream(stage, source, target, **options)))
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> Stream:
        self._thread.join()
        return self._result[0]


def counted(stage: Stage, source: str, target: str, before: dict[str, int] | None = None) -> dict[str, int]:
    now = stage.counters(source, target)
    return {key: now[key] - (before[key] if before else 0) for key in COUNTERS}


def wait_offered(stage: Stage, way: tuple[str, str], before: dict[str, int], number: int) -> None:
    """Wait until ``number`` packets have come to the link since ``before``."""
    deadline = time.monotonic() + 10
    while stage.counters(*way)["offered"] - before["offered"] < number:
        assert time.monotonic() < deadline, f"fewer than {number} packets were sent"
        time.sleep(0.01)


def send(stage: Stage, source: str, target: str, number: int, size: int = 60) -> None:
    with stage.bound(source, socket.SOCK_DGRAM) as near:
        for _ in range(number):
            near.sendto(bytes(size), (stage.address(target), 9))


def test_ipv6_is_shaped_as_ipv4(stage: Stage, note: Note) -> None:
    stage.shape(*UP, LinkProfile(latency=0.05))
    before = counted(stage, *UP)
    with (
        stage.bound_to_ipv6("cloud", socket.SOCK_DGRAM) as far,
        stage.bound_to_ipv6("device-0", socket.SOCK_DGRAM) as near,
    ):
        delays = []
        for number in range(20):
            sent = time.monotonic()
            near.sendto(bytes([number]), far.getsockname())
            assert far.recv(1) == bytes([number])
            delays.append(time.monotonic() - sent)
    assert counted(stage, *UP, before) == {"offered": 20, "delivered": 20, "lost": 0, "cut_dropped": 0}
    assert delays == pytest.approx([0.05] * 20, abs=EXACT)
    note("IPv6 datagrams over 50 ms, the longest (ms)", 50, f"{max(delays) * 1000:.3f}")


def test_a_change_in_place_keeps_what_is_on_its_way(stage: Stage, note: Note) -> None:
    stage.shape(*UP, LinkProfile(latency=0.3))
    before = counted(stage, *UP)
    going = Background(stage, *UP, count=50, spacing=0.002, settle=0.5)
    wait_offered(stage, UP, before, 50)  # none has arrived yet
    stage.do(stage.fabric.change(*UP, LinkProfile(latency=0.02, loss=0.5, rate=1e6)))
    kept = going.result()
    assert kept.lost == 0
    assert kept.delays == pytest.approx([0.3] * 50, abs=EXACT)
    assert counted(stage, *UP, before) == {"offered": 50, "delivered": 50, "lost": 0, "cut_dropped": 0}
    note("of 50 on their way, arrived after a change in place", 50, 50 - kept.lost)


def test_a_silent_link_holds_packets_back(stage: Stage, note: Note) -> None:
    link = LinkProfile(latency=0.01, rate=1e6, buffer=1.0)
    stage.shape(*UP, link)
    began = time.time()
    stage.do(stage.fabric.change(*UP, link.merged(silence=1.0)))
    going = Background(stage, *UP, count=20, spacing=0.002, settle=1.5)
    time.sleep(0.5)
    before = stage.counters(*UP)
    stage.do(stage.fabric.change(*UP, link.merged(silence=round(began + 1.0 - time.time(), 9))))
    found = going.result()
    assert found.lost == 0
    assert before["delivered"] <= stage.counters(*UP)["delivered"] - 20
    first = min(arrival.time for arrival in found.arrivals)
    # A packet of 102 bytes takes 0.8 ms of the rate, then comes the latency.
    assert first - began == pytest.approx(1.010816, abs=2e-4)
    note("first packet after 1 s of silence (s)", 1.0108, f"{first - began:.5f}")
    stage.do(stage.fabric.change(*UP, link))
    assert stream(stage, *UP, count=20).lost == 0


@pytest.mark.parametrize("latency", [0.0, 0.1])
def test_nothing_crosses_a_cut_link(stage: Stage, note: Note, latency: float) -> None:
    both = (UP, DOWN)
    stage.shape(*UP, LinkProfile(latency=latency), LinkProfile(latency=latency))
    before = {way: counted(stage, *way) for way in both}
    going = {way: Background(stage, *way, count=1200, spacing=0.002, settle=0.5) for way in both}
    for way in both:
        wait_offered(stage, way, before[way], 150)
    for way in both:
        stage.do(stage.fabric.cut(*way))
    cut = time.time()
    time.sleep(0.3)  # the length of the cut
    restored = time.time()
    for way in both:
        stage.do(stage.fabric.restore(*way))
    while_cut = 0
    for way in both:
        sent = going[way].result()
        while_cut += sum(cut < at < restored for at in sent.sent)
        assert not [arrival for arrival in sent.arrivals if cut < arrival.time < restored]
        # Also what set out before or during the cut and would have been due after it. A packet has left for certain
        # when the next one's time is taken: its sender may be held up between taking its time and sending it.
        left = dict(enumerate(sent.sent[1:]))
        assert not [
            arrival
            for arrival in sent.arrivals
            if cut - latency < sent.sent[arrival.number] and left.get(arrival.number, restored) < restored
        ]
        now = counted(stage, *way, before[way])
        assert now["delivered"] == sent.counts()["received"] > 100
        assert now["lost"] == 0
        assert now["cut_dropped"] == now["offered"] - now["delivered"]
        assert now["offered"] == 1200
    assert while_cut == 300  # 0.3 s, every 2 ms, both ways
    note(f"arrived of {while_cut} sent while cut, latency {latency * 1000:.0f} ms, both ways", 0, 0)


def test_a_cut_holds_through_changes_and_restarts(stage: Stage) -> None:
    stage.do(stage.fabric.cut(*DOWN))
    stage.do(stage.fabric.change(*DOWN, LinkProfile(latency=0.001)))
    stage.attach("device-0")
    before = counted(stage, *DOWN)
    assert stream(stage, *DOWN, count=20).lost == 20
    assert counted(stage, *DOWN, before) == {"offered": 20, "delivered": 0, "lost": 0, "cut_dropped": 20}
    assert stream(stage, *UP, count=20).lost == 0
    stage.do(stage.fabric.restore(*DOWN))
    assert stage.state(*DOWN).profile == LinkProfile(latency=0.001)
    assert stream(stage, *DOWN, count=20).lost == 0


def test_counters_are_exact(stage: Stage, note: Note) -> None:
    stage.shape(*UP, LinkProfile(latency=0.6, loss=0.2))
    before = stage.counters(*UP)
    going = Background(stage, *UP, count=500, spacing=0, size=58, settle=0.8)
    wait_offered(stage, UP, before, 500)
    on_the_way = stage.counters(*UP)
    arrived = going.result().counts()["received"]
    after = stage.counters(*UP)
    difference = {key: after[key] - before[key] for key in after if isinstance(after[key], int)}
    assert difference["offered"] == on_the_way["offered"] - before["offered"] == 500
    assert on_the_way["delivered"] == before["delivered"]
    assert difference["lost"] == 500 - arrived > 0
    assert (difference["delivered"], difference["delivered_bytes"]) == (arrived, 100 * arrived)
    note(
        "counters of 500 sent: offered, delivered + lost",
        "500, 500",
        f"{difference['offered']}, {arrived} + {difference['lost']}",
    )


def test_counters_outlive_a_restart(stage: Stage) -> None:
    before = counted(stage, *DOWN)
    assert stream(stage, *DOWN, count=30).lost == 0
    stage.attach("device-0")
    assert stream(stage, *DOWN, count=12).lost == 0
    assert counted(stage, *DOWN, before) == {"offered": 42, "delivered": 42, "lost": 0, "cut_dropped": 0}


def test_a_backlog_is_shown(stage: Stage) -> None:
    stage.shape(*UP, LinkProfile(rate=1e5, buffer=3.0))
    send(stage, *UP, 10, size=FULL)
    state = stage.state(*UP)
    assert state.backlog_packets == 10  # a frame needs 121 ms
    assert state.backlog == 10 * FULL_FRAME


def test_pairs_without_a_link_exchange_nothing(stage: Stage) -> None:
    before = {way: counted(stage, *way) for way in (UP, DOWN)}
    with stage.bound("device-0", socket.SOCK_DGRAM) as near, stage.bound("device-1", socket.SOCK_DGRAM) as far:
        mac = stage.plan.node("device-1").mac
        stage.nodes["device-0"].run("ip", "neigh", "replace", far.getsockname()[0], "lladdr", mac, "dev", "data0")
        far.settimeout(0.2)
        for _ in range(5):
            near.sendto(b"?", far.getsockname())
        with pytest.raises(TimeoutError):
            far.recv(10)
    assert all(counted(stage, *way) == before[way] for way in (UP, DOWN))


def test_packets_for_an_absent_node_take_no_one_elses_link(stage: Stage, note: Note) -> None:
    before = counted(stage, "cloud", "device-0")
    stage.detach("device-1")
    send(stage, "cloud", "device-1", 20)
    stage.attach("device-1")  # has not said anything since
    send(stage, "cloud", "device-1", 20)
    assert counted(stage, "cloud", "device-0", before) == dict.fromkeys(COUNTERS, 0)
    note("of 40 to an absent and a silent node, counted on another's link", 0, 0)


def test_devices_do_not_share(stage: Stage, note: Note) -> None:
    stage.shape(*UP, LinkProfile(rate=1e6, buffer=0.5))
    send(stage, *UP, 30, size=FULL)  # 0.36 s of that link
    slowest = max(stream(stage, "device-1", "cloud", count=30, spacing=0.005).delays)
    assert slowest < EXACT
    note("one way beside a saturated link, the longest (ms)", 0, f"{slowest * 1000:.4f}")


def test_what_the_kernel_does_otherwise_is_refused(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netem.profile.LONGEST", math.inf)  # a profile allows nothing that the kernel refuses
    with pytest.raises((FabricError, HostError)):
        stage.do(stage.fabric.change(*UP, LinkProfile(latency=1e6)))  # beyond what the kernel's clock of ns holds


def test_a_rate_above_those_of_the_kernel_is_no_limit(stage: Stage) -> None:
    stage.do(stage.fabric.change(*UP, LinkProfile(latency=0.005, rate=40e9)))
    assert any("32gbit, so the link has no" in each for each in stage.fabric.notes())
    assert stream(stage, *UP, count=10, spacing=0.005).delays == pytest.approx([0.005] * 10, abs=EXACT)


def test_two_hundred_peers(shared: Stage, tmp_path: Path, note: Note) -> None:
    """One node with 200 links in, told apart by a hash of the source's address."""
    with Stage(200, tmp_path, "{latency: 1ms, rate: 50mbit}", shared.tried) as stage:
        stage.attach("cloud")
        for number in (1, 37, 200):
            source = f"device-{number - 1}"
            stage.attach(source)
            before = offered(stage)
            latency = number / 10_000  # 0.1, 3.7 and 20 ms
            stage.do(stage.fabric.change(source, "cloud", LinkProfile(latency=latency)))
            sent = stream(stage, source, "cloud", count=10, spacing=0.005)
            assert sent.lost == 0
            assert sent.delays == pytest.approx([latency] * 10, abs=EXACT)
            assert offered(stage) == before | {source: before[source] + 10}
            note(f"peer {number} of 200: one way, the longest (ms)", latency * 1e3, f"{max(sent.delays) * 1e3:.4f}")


def offered(stage: Stage) -> dict[str, int]:
    """Packets offered to each link that leads to the cloud."""
    rows = stage.do(stage.fabric.counters()).links
    return {str(row["source"]): int(row["offered"]) for row in rows if row["target"] == "cloud"}


def test_changes_leave_the_loss_of_a_chain_as_it_is(stage: Stage, note: Note) -> None:
    """netem restarts a chain at each change. In its good state it would lose none of the first packets: with 12 packets
    between two changes 0.43 of the configured share, 1 - (1 - 0.89^12) / (12 x 0.11)."""
    chain = GilbertElliott(p=0.01, r=0.1)
    lossy = LinkProfile(loss=chain, rate=900e6)
    stage.shape(*UP, lossy)
    before = stage.counters(*UP)
    going = Background(stage, *UP, count=6000, spacing=0.002)
    changes = 0
    while going.running:
        changes += 1
        stage.do(stage.fabric.change(*UP, lossy.merged(rate=900e6 + 1e6 * (changes % 2))))
        time.sleep(0.02)
    counted = stage.counters(*UP)["lost"] - before["lost"]
    assert counted == going.result().lost
    # A burst has 10 packets or ends at a change: the variance is at most 12 times that of independent losses.
    low, high = (12 * number for number in likely(6000 // 12, chain.mean_loss))
    note(f"lost of 6000 by a chain, {changes} changes", f"{low}..{high}", counted)
    assert changes > 200
    assert low <= counted <= high
