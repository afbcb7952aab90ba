"""What a NAT lets in: flows that its node has begun, until they were idle for too long."""

from __future__ import annotations

import socket
import struct

import pytest

from netem.profile import ETHERNET
from netem.userspace import nat as module
from netem.userspace.frame import HEADER_SIZE
from netem.userspace.nat import Nat, ends_of

TCP, UDP, ICMP = 6, 17, 1
INSIDE, OUTSIDE = ("10.77.0.2", 40000), ("10.77.0.1", 443)
INSIDE_6, OUTSIDE_6 = ("fd65::2", 40000), ("fd65::1", 443)
IDLE = 60.0  # s, the time-out of each NAT here


def packet(
    source: tuple[str, int], target: tuple[str, int], protocol: int = UDP, *, fragment: int = 0, options: int = 0
) -> bytes:
    """A frame as the switch reads it. ``fragment``: its offset in eight bytes. ``options``: bytes of them in IPv4."""
    ports = struct.pack("!HH", source[1], target[1]) + bytes(16)
    start = bytes(HEADER_SIZE + ETHERNET - 2)
    if ":" in source[0]:
        addresses = b"".join(socket.inet_pton(socket.AF_INET6, end[0]) for end in (source, target))
        return start + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, len(ports), protocol, 64) + addresses + ports
    addresses = b"".join(socket.inet_aton(end[0]) for end in (source, target))
    length = 20 + options
    header = struct.pack("!BBHHHBBH", 0x40 | length // 4, 0, length + len(ports), 1, fragment, 64, protocol, 0)
    return start + b"\x08\x00" + header + addresses + bytes(options) + ports


@pytest.mark.parametrize("protocol", [TCP, UDP])
@pytest.mark.parametrize(("inside", "outside"), [(INSIDE, OUTSIDE), (INSIDE_6, OUTSIDE_6)])
def test_an_idle_flow_is_dropped_until_the_node_sends(
    protocol: int, inside: tuple[str, int], outside: tuple[str, int]
) -> None:
    nat = Nat(IDLE)
    there, back = packet(inside, outside, protocol), packet(outside, inside, protocol)
    assert nat.leaves(there, 0.0)
    assert nat.admits(back, IDLE)  # idle for the time-out, and not longer
    assert not nat.admits(back, 2 * IDLE + 0.1)
    assert not nat.admits(back, 2 * IDLE + 0.2)  # what was dropped does not keep the flow alive
    assert nat.leaves(there, 2 * IDLE + 0.3)
    assert nat.admits(back, 2 * IDLE + 0.4)


def test_packets_in_either_direction_keep_a_flow_alive() -> None:
    nat = Nat(IDLE)
    nat.leaves(packet(INSIDE, OUTSIDE), 0.0)
    for minute in range(5):
        assert nat.admits(packet(OUTSIDE, INSIDE), 50.0 * (minute + 1))


def test_flows_are_apart() -> None:
    nat = Nat(IDLE)
    other = INSIDE[0], INSIDE[1] + 1
    nat.leaves(packet(INSIDE, OUTSIDE), 0.0)
    nat.leaves(packet(INSIDE, OUTSIDE, TCP), 90.0)
    nat.leaves(packet(other, OUTSIDE), 90.0)
    assert not nat.admits(packet(OUTSIDE, INSIDE), 100.0)
    assert nat.admits(packet(OUTSIDE, INSIDE, TCP), 100.0)
    assert nat.admits(packet(OUTSIDE, other), 100.0)


def test_what_the_other_end_has_started_always_passes() -> None:
    nat = Nat(IDLE)
    assert nat.admits(packet(OUTSIDE, INSIDE), 0.0)
    nat.leaves(packet(INSIDE, OUTSIDE), 1.0)  # an answer, which does not make the flow the node's
    assert nat.admits(packet(OUTSIDE, INSIDE), 1000.0)


def test_the_oldest_flow_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FLOWS", 2)
    nat = Nat(IDLE)
    ends = [(INSIDE[0], port) for port in (1, 2, 3)]
    for end in ends:
        nat.leaves(packet(end, OUTSIDE), 0.0)
    admitted = [nat.admits(packet(OUTSIDE, end), 100.0) for end in reversed(ends)]
    assert admitted == [False, False, True]  # of the first, nothing is known any more


@pytest.mark.parametrize(
    "without_ports",
    [
        packet(INSIDE, OUTSIDE, ICMP),
        packet(INSIDE, OUTSIDE, fragment=185),
        bytes(HEADER_SIZE + ETHERNET - 2) + b"\x08\x06" + bytes(28),
        *(packet(INSIDE, OUTSIDE)[:length] for length in range(HEADER_SIZE + ETHERNET + 24)),
        *(packet(INSIDE_6, OUTSIDE_6)[:length] for length in range(HEADER_SIZE + ETHERNET + 44)),
    ],
)
def test_what_has_no_ports_is_no_flow(without_ports: bytes) -> None:
    assert ends_of(without_ports) is None
    assert Nat(0.0).admits(without_ports, 5.0)


def test_ports_are_behind_options() -> None:
    _, source, target = ends_of(packet(INSIDE, OUTSIDE, TCP, options=8)) or (0, b"", b"")
    assert (source[-2:], target[-2:]) == (struct.pack("!H", INSIDE[1]), struct.pack("!H", OUTSIDE[1]))
