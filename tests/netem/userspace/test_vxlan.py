"""VXLAN by a process: frames and packets between two pairs of sockets, which stand for the device and the underlay."""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest

from netem.userspace.vxlan import TAG, Tunnel, open_underlay
from tests.netem.wiring import ROOT

NODE = "02:ed:00:00:00:02"
OTHERS = bytes.fromhex("02ed00000009")
FRAME = bytes.fromhex(NODE.replace(":", "")) + OTHERS + b"\x08\x00" + bytes(46)
HEADER = bytes.fromhex("08000000" + "0000ed" + "00")  # RFC 7348, section 5: flag I, identifier 237
HOST = "127.0.0.1"


class Ends:
    """A tunnel, what its device is given and gives, and a socket at another host."""

    def __init__(self) -> None:
        self.inside, self.device = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.device.setblocking(False)
        self.other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.other.bind((HOST, 0))
        self.underlay = open_underlay(HOST, 0)
        self.tunnel = Tunnel(self.device.fileno(), self.underlay, self.other.getsockname()[1], 237)
        for each in (self.inside, self.other):
            each.settimeout(5.0)

    def receive(self, packet: bytes) -> None:
        self.other.sendto(packet, self.underlay.getsockname())
        self.tunnel.receive()

    def close(self) -> None:
        for each in (self.inside, self.device, self.other, self.underlay):
            each.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    assert made.tunnel.handle({"id": 1, "op": "forward", "hosts": {NODE: HOST}}) == {"id": 1, "ok": True}
    yield made
    made.close()


def test_a_frame_goes_to_the_host_of_its_destination(ends: Ends) -> None:
    ends.inside.send(FRAME)
    ends.tunnel.send()
    assert ends.other.recv(2000) == HEADER + FRAME
    assert ends.tunnel.counters()["sent"] == 1


def test_a_frame_to_no_one_is_dropped_and_counted(ends: Ends) -> None:
    ends.inside.send(b"\xff" * 6 + FRAME[6:])
    ends.tunnel.send()
    assert ends.tunnel.counters() == {"sent": 0, "received": 0, "unrouted": 1, "unsent": 0, "from_strangers": 0}


def test_a_packet_gives_its_frame_to_the_device(ends: Ends) -> None:
    ends.receive(HEADER + FRAME)
    assert ends.inside.recv(2000) == FRAME


@pytest.mark.parametrize(
    "packet",
    [b"", b"\x08", HEADER[:7], struct.pack("!B3xI", 8, 238 << 8) + FRAME, b"\x00" + HEADER[1:] + FRAME],
    ids=["empty", "one byte", "no identifier", "another identifier", "without the flag"],
)
def test_a_strange_packet_is_dropped_and_counted(ends: Ends, packet: bytes) -> None:
    ends.receive(packet)
    assert ends.tunnel.counters()["from_strangers"] == 1
    assert ends.tunnel.counters()["received"] == 0


def test_a_packet_from_no_host_of_the_run_is_dropped(ends: Ends) -> None:
    ends.tunnel.forward({NODE: "192.0.2.7"})
    ends.receive(HEADER + FRAME)
    assert ends.tunnel.counters()["from_strangers"] == 1


def test_with_a_key_only_packets_with_its_tag_pass(ends: Ends) -> None:
    key = bytes(range(32))
    ends.tunnel.forward({NODE: HOST}, key.hex())
    ends.inside.send(FRAME)
    ends.tunnel.send()
    packet = ends.other.recv(2000)
    # RFC 7693: BLAKE2b with a key and 16 bytes of output, as Python has it.
    assert packet == HEADER + FRAME + hashlib.blake2b(HEADER + FRAME, key=key, digest_size=TAG).digest()
    for forged in (HEADER + FRAME, packet[:-1] + bytes([packet[-1] ^ 1]), packet[:20] + b"!" + packet[21:], HEADER):
        ends.receive(forged)
    assert ends.tunnel.counters()["from_strangers"] == 4
    ends.receive(packet)
    assert ends.inside.recv(2000) == FRAME


@pytest.mark.parametrize("hosts", [{"02:ed": HOST}, {NODE: "pi-7"}, {NODE: None}, [NODE]])
def test_a_wrong_request_changes_nothing(ends: Ends, hosts: object) -> None:
    assert ends.tunnel.handle({"id": 2, "op": "forward", "hosts": hosts})["error"].startswith("forward: ")
    ends.receive(HEADER + FRAME)
    assert ends.inside.recv(2000) == FRAME


def test_a_port_that_is_taken_ends_the_process_with_one_line() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((HOST, 0))
        arguments = [str(os.getpid()), "trunk", "trunk.far", HOST, str(taken.getsockname()[1]), "237"]
        done = subprocess.run(
            [sys.executable, "-m", "netem.userspace.vxlan", *arguments],
            stdin=subprocess.PIPE,
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("netem.userspace.vxlan: cannot open UDP port")
    assert done.stderr.count("\n") == 1
