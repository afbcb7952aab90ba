"""The switch: its answers without any packets, then real packets between network namespaces.

How exact times and rates are is measured in virtual time: `tests/lab/inside/test_userspace.py`.
"""

from __future__ import annotations

import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.profile import LinkProfile
from netem.userspace.frame import HEADER, NEEDS_CHECKSUM, NO_GSO, TCP_IPV4
from netem.userspace.port import Port
from netem.userspace.segments import segments_together
from netem.userspace.switch import CLOSING, LATE, Switch
from tests.netem.measured import settled, wait_until
from tests.netem.ports import Held
from tests.netem.traffic import datagrams, goodput, round_trips, segments_of_one_call, transfer
from tests.netem.wiring import ROOT, Lab, SwitchProcess

netns = pytest.mark.netns


@pytest.fixture(autouse=True)
def _clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave links unimpaired and uncut for the next test."""
    yield
    if "lab" in request.fixturenames:
        lab: Lab = request.getfixturevalue("lab")
        for one, other in (("a", "b"), ("a", "c"), ("b", "c")):
            lab.shape(one, other, {})
            lab.ask("restore", source=one, target=other)
            lab.ask("restore", source=other, target=one)


class ClosesWithAnother:
    """A port that is closed only when another one is being closed."""

    def __init__(self, meeting: threading.Barrier) -> None:
        self.meeting = meeting
        self.closed = False

    def close(self) -> None:
        self.meeting.wait(timeout=10.0)
        self.closed = True


def test_ports_are_closed_at_the_same_time() -> None:
    switch = Switch()
    meeting = threading.Barrier(3)
    ports = [ClosesWithAnother(meeting) for _ in range(3)]
    for name, port in zip("abc", ports, strict=True):
        switch.ports[name] = cast(Port, port)
    switch.close()
    assert [port.closed for port in ports] == [True] * 3


def test_a_switch_with_more_ports_than_threads_closes_all() -> None:
    switch = Switch()
    ports = [ClosesWithAnother(threading.Barrier(1)) for _ in range(2 * CLOSING + 1)]
    for number, port in enumerate(ports):
        switch.ports[str(number)] = cast(Port, port)
    switch.close()
    assert all(port.closed for port in ports)


class TestAnswers:
    def test_requests_are_answered_by_id(self) -> None:
        answer = Switch().handle({"id": 7, "op": "link", "source": "a", "target": "b", "profile": {}, "seed": 1})
        assert answer == {"id": 7, "ok": True}

    @pytest.mark.parametrize(
        ("request_", "said"),
        [
            (None, "a request is a JSON object"),
            ({}, "unknown op None; known are attach, detach, link"),
            ({"op": "atach"}, "unknown op 'atach'"),
            ({"op": "detach", "port": "a"}, "no port a is attached"),
            ({"op": "cut", "source": "a", "target": "b"}, "no link from a to b"),
            ({"op": "cut", "source": "a"}, "missing"),
            ({"op": "cut", "source": ["a"], "target": "b"}, "source must be a text"),
            ({"op": "link", "source": "a", "target": "b", "profile": {}}, "a new link needs a seed"),
            ({"op": "link", "source": "a", "target": "b", "profile": {"rate": "1Mbps"}, "seed": 1}, "mbit"),
            ({"op": "link", "source": "a", "target": "b", "profile": {"dely": "1ms"}, "seed": 1}, "dely"),
            ({"op": "attach", "port": "a", "interface": "lo", "mac": "02:ed"}, "no hardware address"),
            ({"op": "batch", "requests": 5}, "batch"),
        ],
    )
    def test_a_bad_request_is_answered_with_its_error(self, request_: object, said: str) -> None:
        answer = Switch().handle(request_)
        assert set(answer) == {"error"}
        assert said in answer["error"]

    def test_a_batch_has_one_reply_each_and_continues_after_an_error(self) -> None:
        link = {"op": "link", "source": "a", "target": "b", "profile": {"latency": "5ms"}, "seed": 1}
        answer = Switch().handle({"id": 1, "op": "batch", "requests": [link, {"op": "none"}, {"op": "counters"}]})
        first, second, third = answer["replies"]
        assert first == {"ok": True}
        assert "unknown op" in second["error"]
        assert [(item["source"], item["target"], item["offered"]) for item in third["links"]] == [("a", "b", 0)]

    def test_an_existing_link_is_changed_in_place(self) -> None:
        switch = Switch()
        switch.link("a", "b", {"latency": "5ms"}, 1)
        link = switch.links["a", "b"]
        switch.link("a", "b", {"rate": "1mbit"})
        assert switch.links["a", "b"] is link
        assert link.impairment.profile.rate == 1e6
        assert link.segments == 1

    def test_a_missing_interface_is_named(self) -> None:
        attach = {"op": "attach", "port": "a", "interface": "none0", "mac": "02:ed:00:00:00:01"}
        error = Switch().handle(attach)["error"]
        assert "port a" in error
        assert "none0" in error or "CAP_NET_RAW" in error

    @pytest.mark.parametrize(
        ("profile", "segments"),
        [
            (LinkProfile(latency=0.01, jitter=0.001), None),
            (LinkProfile(loss=0.01), 1),
            (LinkProfile(rate=1e6), 1),
            (LinkProfile(rate=1e8), 8),  # 1 ms of 100 Mbit/s is 12,500 bytes, 8.3 frames of 1514
            (LinkProfile(rate=1e8, corrupt=0.01), 1),
            (LinkProfile(drop_above=1200), 1),
        ],
    )
    def test_segments_that_travel_together(self, profile: LinkProfile, segments: int | None) -> None:
        assert segments_together(profile) == segments


MAC = bytes.fromhex("02ed00000002")
IMPAIRMENTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "latency": {"latency": "1ms"},
    "jitter": {"latency": "1ms", "jitter": "5ms"},
    "loss": {"loss": "50%"},
    "bursts": {"loss": {"gilbert-elliott": {"p": "20%", "r": "30%"}}},
    "rate": {"rate": "10kbit", "buffer": "1kb"},
    "fast": {"rate": "10gbit"},
    "duplicate": {"duplicate": "50%"},
    "corrupt": {"corrupt": "100%"},
    "reorder": {"latency": "1ms", "reorder": "50%"},
    "everything": {
        "latency": "1ms",
        "jitter": "1ms",
        "loss": "5%",
        "rate": "1mbit",
        "duplicate": "20%",
        "corrupt": "50%",
        "reorder": "20%",
    },
}

FLAGS = st.sampled_from((0, NEEDS_CHECKSUM, 2, 0xFF))
GSO_TYPES = st.sampled_from((NO_GSO, NO_GSO, TCP_IPV4, 4, 5, 0x81, 0xFF))
SMALL, LARGE = st.integers(0, 80), st.integers(0, 0xFFFF)
HEADERS = st.builds(HEADER.pack, FLAGS, GSO_TYPES, LARGE, LARGE | SMALL, SMALL | LARGE, SMALL | LARGE)
BODIES = st.one_of(
    st.binary(max_size=70), st.builds(lambda seed, size: Random(seed).randbytes(size), LARGE, st.integers(71, 65_550))
)
FRAMES = st.builds(
    lambda mac, type_, body, length: (mac + bytes(6) + type_ + body)[:length],
    st.sampled_from((MAC, MAC, bytes(6))),
    st.sampled_from((b"\x08\x00", b"\x86\xdd", b"\x08\x06", b"\x81\x00")),
    BODIES,
    st.integers(0, 70) | st.just(66_000),
)


class TestHostileFrames:
    """No frame that a node puts on its interface, and no virtio header, ends the switch."""

    def forwarded(self, packets: list[bytes], profile: dict[str, Any]) -> Switch:
        now = [0.0]
        switch = Switch(clock=lambda: now[0])
        switch.link("a", "b", profile, 1)
        source, target = Held("a", bytes(6), list(packets)), Held("b", MAC, [])
        switch.ports = {"a": source, "b": target}  # type: ignore[dict-item]
        switch._reroute("b")
        while source.packets:
            switch.forward(source)  # type: ignore[arg-type]
            now[0] += 0.001
        now[0] += 1e9
        while switch.flight.deliver() is not None:
            pass
        counted = switch.links["a", "b"].impairment.counted(now[0])
        assert counted.offered + counted.duplicated == counted.delivered + counted.lost + counted.overflowed
        assert switch.flight.dropped == 0
        return switch

    @pytest.mark.parametrize("profile", IMPAIRMENTS.values(), ids=IMPAIRMENTS)
    def test_every_short_length(self, profile: dict[str, Any]) -> None:
        frame = MAC + bytes(6) + b"\x08\x00" + b"\x45" + bytes(60)
        packets = [
            header + frame[:length]
            for length in range(71)
            for header in (bytes(10), HEADER.pack(NEEDS_CHECKSUM, NO_GSO, 34, 0, 34, 16))
        ]
        switch = self.forwarded(packets, profile)
        assert switch.unrouted == 2 * 6  # a destination address has six bytes

    @given(st.sampled_from(list(IMPAIRMENTS.values())), st.lists(st.builds(bytes.__add__, HEADERS, FRAMES), max_size=8))
    def test_any_bytes(self, profile: dict[str, Any], packets: list[bytes]) -> None:
        self.forwarded(packets, profile)

    def test_a_super_packet_of_tiny_segments_does_not_hold_up_the_others(self) -> None:
        frame = MAC + bytes(6) + b"\x08\x00" + b"\x45" + bytes(31) + b"\x50" + bytes(65_000)
        switch = self.forwarded([HEADER.pack(NEEDS_CHECKSUM, TCP_IPV4, 54, 1, 34, 16) + frame], {"loss": "1%"})
        assert switch.unreadable == 1


@netns
class TestHostileSender:
    SEND = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
    raw.bind(("data0", 0))
    head = bytes.fromhex(sys.argv[1]) + bytes(6)
    for type_ in (b"\\x81\\x00", b"\\x08\\x00", b"\\x08\\x06"):
        for length in [*range(14, 71), 600, 1514]:
            raw.send((head + type_ + b"\\x4f" * 1500)[:length])
"""

    @pytest.mark.parametrize("profile", IMPAIRMENTS.values(), ids=IMPAIRMENTS)
    def test_raw_frames_of_every_length_leave_the_switch_at_work(self, lab: Lab, profile: dict[str, Any]) -> None:
        lab.shape("a", "b", profile, {})
        before = lab.counters("a", "b")["offered"]
        lab.nodes["a"].run(sys.executable, "-c", self.SEND, lab.mac("b").replace(":", ""))
        wait_until(lambda: lab.counters("a", "b")["offered"] >= before + 2 * 59)  # short tags do not leave a
        lab.shape("a", "b", {})
        assert datagrams(lab, "a", "b", 5) == list(range(5))


@netns
class TestSpeed:
    def test_lateness_is_counted(self, lab: Lab) -> None:
        lab.shape("a", "b", {"latency": "5ms"})
        round_trips(lab, "a", "b", 20)
        counters = lab.ask("counters")
        assert 0 < counters["late_p99"] <= counters["late_max"]
        assert counters["cpu_seconds"] > 0

    def test_unshaped_tcp_is_fast(self, lab: Lab) -> None:
        """The benchmark's figure is several times this. Processor time is that of the host, so it is measured there."""
        settled(lambda: goodput(lab, "a", "b", 1.0, 0.2), 1e9, float("inf"))


@netns
class TestFates:
    @pytest.mark.parametrize("offload", [True, False])
    def test_tcp_survives_everything_and_packets_are_single(self, lab: Lab, offload: bool) -> None:
        lab.segment_offload("a", offload)
        hard = {"latency": "2ms", "loss": "0.5%", "duplicate": "1%", "corrupt": "0.5%", "reorder": "1%"}
        lab.shape("a", "b", hard, {"latency": "2ms"})
        before = lab.counters("a", "b")
        rejected = bad_checksums(lab, "b", "Tcp")
        data = Random(1).randbytes(4_000_000)
        assert transfer(lab, "a", "b", data) == data
        after = lab.counters("a", "b")
        offered = after["offered"] - before["offered"]
        assert offered >= 4_000_000 / 1448
        for fate in ("lost", "corrupted", "duplicated", "reordered"):
            assert 0 < after[fate] - before[fate] < 0.02 * offered, fate
        # Damaged packets are found by the receiver's checksum, for otherwise the data would differ.
        assert bad_checksums(lab, "b", "Tcp") - rejected == after["corrupted"] - before["corrupted"]
        lab.segment_offload("a", True)

    def test_corrupt_datagrams_fail_their_checksum(self, lab: Lab) -> None:
        lab.shape("a", "b", {"corrupt": "100%"}, {})
        before = bad_checksums(lab, "b", "Udp")
        arrived = datagrams(lab, "a", "b", 200)
        assert arrived == []
        # A flipped port or length makes the kernel drop the datagram for that instead.
        assert bad_checksums(lab, "b", "Udp") - before > 150

    def test_duplicates_come_twice(self, lab: Lab) -> None:
        lab.shape("a", "b", {"duplicate": "100%", "latency": "1ms"}, {})
        assert sorted(datagrams(lab, "a", "b", 50)) == [number // 2 for number in range(100)]

    def test_segments_are_judged_by_their_own_size(self, lab: Lab) -> None:
        """A packet has 28 bytes of headers, of IPv4 and UDP."""
        lab.shape("a", "b", {"drop_above": 1200}, {})
        before = lab.counters("a", "b")["too_large"]
        assert len(segments_of_one_call(lab, "a", "b", 40, 1172)) == 40
        assert segments_of_one_call(lab, "a", "b", 40, 1173) == []
        assert lab.counters("a", "b")["too_large"] - before == 40

    def test_segments_of_one_call_cross_as_single_packets(self, lab: Lab) -> None:
        """40 datagrams of 1,200 bytes, frames of 1,242, into a buffer of 20 kB at 1 Mbit/s: 16 fit, and leave 9.94 ms
        apart."""
        lab.shape("a", "b", {"latency": "10ms", "rate": "1mbit", "buffer": "20kb"}, {})
        before = lab.counters("a", "b")
        times = segments_of_one_call(lab, "a", "b", 40, 1200)
        assert len(times) == 16
        assert times[-1] - times[0] == pytest.approx(15 * 1242 * 8 / 1e6, rel=0.1)
        after = lab.counters("a", "b")
        assert after["delivered"] - before["delivered"] == 16
        assert after["overflowed"] - before["overflowed"] == 24

    def test_reordered_packets_overtake(self, lab: Lab) -> None:
        lab.shape("a", "b", {"latency": "20ms", "reorder": "25%"}, {})
        numbers = datagrams(lab, "a", "b", 400, spacing=0.001)
        assert sorted(numbers) == list(range(400))
        behind = sum(number < max(numbers[: place + 1]) for place, number in enumerate(numbers))
        # An overtaker is 20 packets ahead, so nearly every one of the other 75 % arrives behind one.
        assert behind == pytest.approx(300, abs=40)

    def test_the_same_seed_loses_the_same_packets(self, lab: Lab) -> None:
        arrived = []
        for _ in range(2):
            with Lab(2) as other:
                other.start_switch()
                other.shape("a", "b", {"loss": "30%"}, {})
                arrived.append(datagrams(other, "a", "b", 100))
        assert arrived[0] == arrived[1]
        assert 50 < len(arrived[0]) < 90


@netns
class TestConnections:
    def test_without_a_link_nothing_crosses(self, pair: Lab) -> None:
        pair.ask("link", source="b", target="a", profile={}, seed=1)
        assert datagrams(pair, "a", "b", 10) == []
        assert pair.ask("counters")["unrouted"] == 10

    def test_packets_to_broadcast_addresses_are_dropped_and_counted(self, pair: Lab) -> None:
        pair.shape("a", "b", {}, {})
        with pair.bound("a", socket.SOCK_DGRAM) as near:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            near.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"data0")
            for _ in range(3):
                near.sendto(b"is anybody there?", ("255.255.255.255", 9))
        wait_until(lambda: pair.ask("counters")["to_groups"] == {"a": 3})
        assert pair.counters("a", "b")["offered"] == 0
        pair.shape("a", "b", {})
        assert datagrams(pair, "a", "b", 10) == list(range(10))

    def test_a_cut_drops_what_is_in_flight_even_if_restored_at_once(self, lab: Lab) -> None:
        lab.shape("c", "b", {"latency": "200ms"}, {})
        with lab.bound("c", socket.SOCK_DGRAM) as near, lab.bound("b", socket.SOCK_DGRAM) as far:
            near.connect(far.getsockname())
            offered, dropped = (lab.counters("c", "b")[key] for key in ("offered", "cut_dropped"))
            for number in range(5):
                near.send(b"in flight %d" % number)
            wait_until(lambda: lab.counters("c", "b")["offered"] == offered + 5)
            lab.ask("cut", source="c", target="b")
            delivered = lab.counters("c", "b")["delivered"]
            assert lab.counters("c", "b")["cut_dropped"] == dropped + 5
            near.send(b"while cut")
            wait_until(lambda: lab.counters("c", "b")["cut_dropped"] == dropped + 6)
            lab.ask("restore", source="c", target="b")
            near.send(b"afterwards")
            assert far.recv(100) == b"afterwards"
            assert lab.counters("c", "b")["delivered"] == delivered + 1

    def test_a_cut_is_one_way(self, lab: Lab) -> None:
        lab.ask("cut", source="a", target="b")
        assert datagrams(lab, "a", "b", 5) == []
        assert datagrams(lab, "b", "a", 5) == list(range(5))

    def test_a_nat_drops_an_idle_flow_until_its_node_sends_again(self, pair: Lab) -> None:
        pair.shape("a", "b", {}, {})
        pair.ask("nat", source="b", target="a", timeout=0.3)
        with pair.bound("a", socket.SOCK_DGRAM) as inside, pair.bound("b", socket.SOCK_DGRAM) as outside:
            inside.sendto(b"begin", outside.getsockname())
            assert outside.recv(100) == b"begin"
            outside.sendto(b"answer", inside.getsockname())
            assert inside.recv(100) == b"answer"
            offered = pair.counters("b", "a")["offered"]
            time.sleep(0.4)  # longer than the time-out
            outside.sendto(b"too late", inside.getsockname())
            wait_until(lambda: pair.counters("b", "a")["nat_expired"] == 1)
            inside.sendto(b"again", outside.getsockname())
            assert outside.recv(100) == b"again"
            outside.sendto(b"in time", inside.getsockname())
            assert inside.recv(100) == b"in time"
        counted = pair.counters("b", "a")
        assert (counted["offered"] - offered, counted["nat_expired"]) == (1, 1)
        assert pair.counters("a", "b")["nat_expired"] == 0

    def test_a_restarted_node_is_attached_again(self, pair: Lab) -> None:
        switch = pair.switch
        assert switch is not None
        pair.shape("a", "b", {"latency": "5ms"})
        assert datagrams(pair, "a", "b", 5) == list(range(5))
        pair.remove("b")
        # Events are read while waiting for a reply.
        wait_until(lambda: bool(pair.ask("counters")) and {"event": "port_down", "port": "b"} in switch.events)
        with pair.bound("a", socket.SOCK_DGRAM) as near:
            near.sendto(b"to nobody", (pair.address("b"), 9))
        pair.add("b")
        pair.attach("b")
        assert datagrams(pair, "a", "b", 5) == list(range(5))
        assert statistics.median(round_trips(pair, "a", "b", 10)) == pytest.approx(0.0105, abs=0.003)

    def test_detached_nodes_receive_nothing(self, lab: Lab) -> None:
        lab.ask("detach", port="c")
        try:
            assert datagrams(lab, "a", "c", 5) == []
        finally:
            lab.attach("c")
        assert datagrams(lab, "a", "c", 5) == list(range(5))

    def test_an_address_or_interface_has_one_port(self, lab: Lab) -> None:
        assert lab.switch is not None
        for arguments in ({"interface": "v-a", "mac": "02:ed:00:00:00:99"}, {"interface": "lo", "mac": lab.mac("a")}):
            assert "port a" in lab.switch.ask("attach", port="d", **arguments)["error"]


@netns
class TestOverload:
    NUMBER = 60_000  # full frames, twice what the largest receive buffer holds with the kernel's overhead

    def test_what_comes_while_it_is_stopped_is_late_or_dropped_and_counted(self, pair: Lab) -> None:
        assert pair.switch is not None
        pair.shape("a", "b", {}, {})
        first = pair.ask("counters")
        assert (first["late"], first["socket_drops"]) == (0, {})
        os.kill(pair.switch.process.pid, signal.SIGSTOP)
        try:
            with pair.bound("a", socket.SOCK_DGRAM) as near:
                near.connect((pair.address("b"), 9))
                for _ in range(self.NUMBER):
                    near.send(bytes(1472))
        finally:
            os.kill(pair.switch.process.pid, signal.SIGCONT)
        readings: list[dict[str, Any]] = []

        def all_there() -> bool:
            readings.append(pair.ask("counters"))
            link = next(link for link in readings[-1]["links"] if link["source"] == "a")
            return bool(link["offered"] + readings[-1]["socket_drops"]["a"] == self.NUMBER)

        wait_until(all_there)
        assert readings[-1]["socket_drops"].keys() == {"a"}
        # Sending so many takes a tenth of a second and more, and the first ones waited for all of it.
        assert max(reading["waited_max"] for reading in readings) > LATE
        assert sum(reading["late"] for reading in readings) > 1000
        assert pair.ask("counters")["late"] == 0  # told once


@netns
class TestLife:
    def test_ends_with_its_input(self, lab: Lab) -> None:
        assert SwitchProcess(lab.hub.prefix).close() == 0

    def test_ends_when_no_one_reads_its_output(self, lab: Lab) -> None:
        switch = SwitchProcess(lab.hub.prefix)
        assert switch.process.stdout is not None
        switch.process.stdout.close()
        assert switch.process.wait(10) == 0
        assert switch.process.stdin is not None
        switch.process.stdin.close()

    def test_a_line_that_is_no_json_is_answered(self, lab: Lab) -> None:
        assert lab.switch is not None
        assert lab.switch.process.stdin is not None
        lab.switch.process.stdin.write("hello\n")
        lab.switch.process.stdin.flush()
        assert lab.switch.read() == {"error": "a request is a JSON object"}


def test_refuses_files_as_input() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "netem.userspace.switch"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert result.returncode == 1
    assert "must be pipes" in result.stderr


def bad_checksums(lab: Lab, node: str, protocol: str) -> int:
    """InCsumErrors of a node's kernel (/proc/net/snmp)."""
    lines = [line.split() for line in lab.nodes[node].run("cat", "/proc/net/snmp").splitlines()]
    names, values = (line for line in lines if line[0] == f"{protocol}:")
    return int(values[names.index("InCsumErrors")])
