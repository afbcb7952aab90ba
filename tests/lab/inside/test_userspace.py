"""Times and rates of the userspace engine, which are exact where computing takes no time.

How fast the switch is, and what it does to packets, is tested on the host: `tests/netem/userspace`. How exact it is on
a host, `tests/e2e/test_measured.py` measures.
"""

from __future__ import annotations

import socket
import statistics
import threading
import time
from collections.abc import Iterator

import pytest

from tests.lab.inside.chance import SWITCHED
from tests.netem.traffic import PAYLOAD_SHARE, datagrams, goodput, round_trips, transfer, uploads
from tests.netem.wiring import Lab

CELL = {"rate": 10e6, "share": "fair", "buffer": 0.1, "rates": {}}
CROSS_TRAFFIC = {"kind": "constant", "rate": 5e6, "on": 0.0, "off": 0.0, "rows": []}


@pytest.fixture(scope="module")
def shared_lab() -> Iterator[Lab]:
    """Nodes a, b and c, and a switch."""
    with Lab(3) as lab:
        lab.start_switch()
        yield lab


@pytest.fixture
def lab(shared_lab: Lab) -> Lab:
    """The same, with every link unimpaired."""
    for one, other in (("a", "b"), ("a", "c"), ("b", "c")):
        shared_lab.shape(one, other, {})
    time.sleep(1.0)  # until nothing of the test before is on its way
    return shared_lab


class TestTime:
    @pytest.mark.parametrize("milliseconds", [1, 50, 200])
    def test_round_trip(self, lab: Lab, milliseconds: int) -> None:
        asked = milliseconds / 1000
        lab.shape("a", "b", {"latency": f"{milliseconds / 2}ms"})
        assert round_trips(lab, "a", "b", 60) == pytest.approx([asked] * 60, abs=SWITCHED)

    def test_jitter_spreads_but_never_reorders(self, lab: Lab) -> None:
        """Probes are four standard deviations apart, so that few wait for another."""
        lab.shape("a", "b", {"latency": "10ms", "jitter": "3ms"}, {})
        times = round_trips(lab, "a", "b", 100, 0.012)
        assert statistics.median(times) == pytest.approx(0.010, abs=0.001)  # three standard errors
        assert statistics.stdev(times) == pytest.approx(0.003, abs=0.0007)  # three of 1 / sqrt(2 n)
        numbers = datagrams(lab, "a", "b", 1000)
        assert numbers == list(range(1000))

    def test_change_in_place_takes_effect_and_keeps_the_counters(self, lab: Lab) -> None:
        lab.shape("a", "b", {"latency": "5ms"})
        assert round_trips(lab, "a", "b", 20) == pytest.approx([0.010] * 20, abs=SWITCHED)
        offered = lab.counters("a", "b")["offered"]
        lab.shape("a", "b", {"latency": "30ms"})
        assert round_trips(lab, "a", "b", 20) == pytest.approx([0.060] * 20, abs=SWITCHED)
        assert lab.counters("a", "b")["offered"] == offered + 20

    def test_packets_that_wait_leave_at_a_new_rate(self, lab: Lab) -> None:
        lab.shape("a", "b", {"rate": "80kbit", "buffer": "5s"}, {})
        with lab.bound("a", socket.SOCK_DGRAM) as near, lab.bound("b", socket.SOCK_DGRAM) as far:
            near.connect(far.getsockname())
            for _ in range(20):  # frames of 1000 bytes: 0.1 s each at that rate
                near.send(bytes(958))
            lab.shape("a", "b", {"rate": "80mbit"}, {})
            began = time.monotonic()
            for _ in range(20):
                far.recv(2000)
            assert time.monotonic() - began == pytest.approx(20 * 0.0001, abs=20 * SWITCHED)

    def test_pairs_do_not_share(self, lab: Lab) -> None:
        lab.shape("a", "b", {"rate": "1mbit", "buffer": "300ms", "latency": "20ms"})
        before = lab.counters("a", "c")["offered"]
        with lab.bound("a", socket.SOCK_DGRAM) as near:
            for _ in range(40):  # 0.3 s of the shaped link
                near.sendto(bytes(1000), (lab.address("b"), 9))
        assert max(round_trips(lab, "a", "c", 20)) < SWITCHED
        assert lab.counters("a", "c")["offered"] == before + 20


class TestRate:
    @pytest.mark.parametrize(("mbit", "offload", "seconds"), [(1, True, 1.2), (20, False, 0.6), (200, True, 0.3)])
    def test_tcp_gets_the_rate_less_headers(self, lab: Lab, mbit: int, offload: bool, seconds: float) -> None:
        lab.segment_offload("a", offload)
        lab.shape("a", "b", {"rate": f"{mbit}mbit", "buffer": "1s"}, {})
        asked = mbit * 1e6
        window = max(20_000, int(0.08 * asked / 8))  # less than the buffer holds, so that no loss needs to be repaired
        got = goodput(lab, "a", "b", 0.2 + seconds, 0.2, window) / PAYLOAD_SHARE
        lab.segment_offload("a", True)
        assert got == pytest.approx(asked, rel=0.01)

    def test_a_long_fat_link_is_filled(self, lab: Lab) -> None:
        lab.shape("a", "b", {"rate": "20mbit", "latency": "250ms"})
        window = 2_000_000  # 1.6 times what 20 Mbit/s and 500 ms hold
        assert goodput(lab, "a", "b", 6.0, 5.0, window) / PAYLOAD_SHARE == pytest.approx(20e6, rel=0.01)

    def test_bytes_are_counted_as_the_link_would_carry_them(self, lab: Lab) -> None:
        before = lab.counters("a", "b")
        assert len(transfer(lab, "a", "b", bytes(1_000_000))) == 1_000_000
        after = lab.counters("a", "b")
        packets = after["offered"] - before["offered"]
        # Each packet has 66 bytes of headers; the first one's longer TCP header has 8 more.
        assert after["offered_bytes"] - before["offered_bytes"] == 1_000_000 + 66 * packets + 8

    def test_a_full_buffer_drops(self, lab: Lab) -> None:
        lab.shape("a", "b", {"rate": "1mbit", "buffer": "20kb"}, {})
        before = lab.counters("a", "b")["overflowed"]
        arrived = datagrams(lab, "a", "b", 100, spacing=0.0, size=958)  # frames of 1000 bytes, all at once
        assert len(arrived) == 20
        assert lab.counters("a", "b")["overflowed"] - before == 80


class TestMedia:
    """Nodes b and c send to a."""

    @pytest.fixture(scope="class")
    @classmethod
    def made(cls) -> Iterator[Lab]:
        """Its links are made with channels."""
        with Lab(3) as lab:
            lab.start_switch()
            yield lab

    @pytest.fixture
    def cells(self, made: Lab) -> Iterator[Lab]:
        for name in ("cell-0", "cell-1"):
            made.ask("channel", name=name, profile=CELL)
        yield made
        made.ask("occupy", name="cell-0", traffic=None)
        for source in "bc":
            made.ask("link", source=source, target="a", crossings=[])

    def route(self, lab: Lab, source: str, *channels: str) -> None:
        crossings = [[channel, source] for channel in channels]
        lab.ask("link", source=source, target="a", profile={"latency": "5ms"}, seed=1, crossings=crossings)
        lab.ask("link", source="a", target=source, profile={"latency": "5ms"}, seed=2)

    @pytest.mark.parametrize("share", ["fifo", "fair", "airtime", "frames"])
    def test_uploads_together_end_when_the_rate_says_so(self, cells: Lab, share: str) -> None:
        cells.ask("channel", name="cell-0", profile=CELL | {"share": share})
        for source in "bc":
            self.route(cells, source, "cell-0")
        seconds = 2 * 500_000 * 8 / PAYLOAD_SHARE / 10e6
        assert max(uploads(cells, "bc", 500_000)) == pytest.approx(seconds, rel=0.03)

    def test_a_cell_does_not_feel_another_that_is_full(self, cells: Lab) -> None:
        self.route(cells, "b", "cell-0")
        self.route(cells, "c", "cell-1")
        upload = threading.Thread(target=uploads, args=(cells, "b", 600_000))
        upload.start()
        times = round_trips(cells, "c", "a", 60)
        upload.join()
        frame = 42 * 8 / 10e6  # of an echo without data
        assert times == pytest.approx([0.010 + frame] * 60, abs=SWITCHED)

    def test_cross_traffic_leaves_the_rest(self, cells: Lab) -> None:
        for source in "bc":
            self.route(cells, source, "cell-0")
        cells.ask("occupy", name="cell-0", traffic=CROSS_TRAFFIC, seed=1)
        seconds = 500_000 * 8 / PAYLOAD_SHARE / 5e6
        assert uploads(cells, "b", 500_000)[-1] == pytest.approx(seconds, rel=0.05)
