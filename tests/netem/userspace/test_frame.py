"""Frames built by hand against the arithmetic and the surgery on them."""

from __future__ import annotations

import struct
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.userspace.frame import (
    HEADER,
    HEADER_SIZE,
    MOST_SEGMENTS,
    NEEDS_CHECKSUM,
    NO_GSO,
    TCP_IPV4,
    TCP_IPV6,
    UDP_SEGMENTS,
    corrupt,
    internet_checksum,
    is_super_packet,
    is_to_a_group,
    link_size,
    ones_complement_sum,
    split,
)

FIN_PUSH_ACK_CWR = 0x99
HEADERS = 14 + 20 + 32  # Ethernet, IPv4, TCP with timestamps
SEGMENT = 1448


def tcp_packet(payload: bytes, segment: int = SEGMENT) -> bytes:
    """What the kernel hands over for `payload`: a super-packet if it is longer than a segment."""
    tcp = struct.pack("!HHIIBBHHH", 1000, 2000, 0xFFFFFF00, 7, 8 << 4, FIN_PUSH_ACK_CWR, 500, 0, 0) + b"\1\1\10\12" * 3
    addresses = bytes([10, 77, 0, 1, 10, 77, 0, 2])
    partial = ones_complement_sum(addresses + struct.pack("!HH", 6, len(tcp) + len(payload)))
    tcp = tcp[:16] + struct.pack("!H", partial) + tcp[18:]
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp) + len(payload), 0xFFFE, 0x4000, 64, 6, 0) + addresses
    ip = ip[:10] + struct.pack("!H", internet_checksum(ip)) + ip[12:]
    ethernet = bytes.fromhex("02ed00000002 02ed00000001 0800")
    large = len(payload) > segment
    # The linear part's length stands in hdr_len, which need not be the headers' length.
    header = HEADER.pack(NEEDS_CHECKSUM, TCP_IPV4 if large else NO_GSO, 128, segment if large else 0, 34, 16)
    return header + ethernet + ip + tcp + payload


def checksums_hold(packet: bytes) -> bool:
    """As a receiver checks that trusts nobody: the sum over the header, or pseudo-header and segment, is all ones."""
    ip, tcp = packet[HEADER_SIZE + 14 : HEADER_SIZE + 34], packet[HEADER_SIZE + 34 :]
    pseudo = ip[12:20] + struct.pack("!HH", 6, len(tcp))
    return ones_complement_sum(ip) == 0 == ones_complement_sum(pseudo + tcp)


def completed(packet: bytes) -> bytes:
    """The packet as it leaves a network card: the checksum finished over the transport segment."""
    return packet[: HEADER_SIZE + 50] + struct.pack("!H", internet_checksum(packet[HEADER_SIZE + 34 :])) + packet[62:]


def test_checksum_of_the_example_in_rfc_1071() -> None:
    data = bytes.fromhex("0001f203f4f5f6f7")  # section 3: the sum is ddf2
    assert ones_complement_sum(data) == 0xDDF2
    assert internet_checksum(data) == 0xFFFF - 0xDDF2


def test_checksum_pads_an_odd_length_with_zero() -> None:
    assert ones_complement_sum(b"\x12\x34\x56") == ones_complement_sum(b"\x12\x34\x56\x00")


def test_a_plain_packet_takes_its_frame() -> None:
    assert link_size(tcp_packet(bytes(SEGMENT))) == (1514, 1)


@pytest.mark.parametrize(("payload", "packets"), [(1449, 2), (2896, 2), (2897, 3), (63712, 44)])
def test_a_super_packet_takes_what_its_segments_would(payload: int, packets: int) -> None:
    assert link_size(tcp_packet(bytes(payload))) == (payload + packets * HEADERS, packets)


@pytest.mark.parametrize("together", [1, 3, 10, 100])
def test_split_pieces_are_the_packet_that_segmentation_would_send(together: int) -> None:
    payload = Random(1).randbytes(10 * SEGMENT + 5)
    whole = tcp_packet(payload)
    pieces = split(whole, together)
    assert b"".join(piece[HEADER_SIZE + HEADERS :] for piece in pieces) == payload
    sizes = [link_size(piece) for piece in pieces]
    assert tuple(map(sum, zip(*sizes, strict=True))) == link_size(whole)
    assert all(packets <= together for _, packets in sizes)
    assert all(checksums_hold(completed(piece)) for piece in pieces)
    for number, piece in enumerate(pieces):
        (identification,) = struct.unpack_from("!H", piece, HEADER_SIZE + 18)
        (sequence,) = struct.unpack_from("!I", piece, HEADER_SIZE + 38)
        assert identification == (0xFFFE + number * together) % 2**16
        assert sequence == (0xFFFFFF00 + number * together * SEGMENT) % 2**32
        assert piece[1] == (TCP_IPV4 if len(piece) - HEADER_SIZE - HEADERS > SEGMENT else NO_GSO)


def test_only_the_first_piece_says_cwr_and_only_the_last_fin_and_push() -> None:
    flags = [piece[HEADER_SIZE + 47] for piece in split(tcp_packet(bytes(3 * SEGMENT)), 1)]
    assert flags == [0x90, 0x10, 0x19]


@pytest.mark.parametrize("tags", [0, 1, 2])
@pytest.mark.parametrize("ipv6", [False, True], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("udp", [False, True], ids=["TCP", "UDP"])
@pytest.mark.parametrize("together", [1, 4])
def test_every_super_packet_of_a_node_is_split(udp: bool, ipv6: bool, tags: int, together: int) -> None:
    payload = Random(4).randbytes(9 * 1200 + 7)
    whole = super_packet(payload, udp=udp, ipv6=ipv6, tags=tags)
    headers = 14 + 4 * tags + (40 if ipv6 else 20) + (8 if udp else 32)
    assert is_super_packet(whole)
    pieces = split(whole, together)
    assert len(pieces) == -(-10 // together)
    assert b"".join(piece[HEADER_SIZE + headers :] for piece in pieces) == payload
    assert [link_size(piece)[1] for piece in pieces] == ([1] * 10 if together == 1 else [4, 4, 2])
    assert tuple(map(sum, zip(*map(link_size, pieces), strict=True))) == link_size(whole)
    for number, piece in enumerate(pieces):
        frame = piece[HEADER_SIZE:]
        ip = frame[14 + 4 * tags :]
        transport = ip[40 if ipv6 else 20 :]
        # The length of the packet is in its header, which in IPv4 has a checksum and the next number.
        if ipv6:
            assert int.from_bytes(ip[4:6]) == len(ip) - 40
            pseudo = ip[8:40] + struct.pack("!II", len(transport), 17 if udp else 6)
        else:
            assert int.from_bytes(ip[2:4]) == len(ip)
            assert int.from_bytes(ip[4:6]) == 100 + number * together
            assert ones_complement_sum(ip[:20]) == 0
            pseudo = ip[12:20] + struct.pack("!HH", 17 if udp else 6, len(transport))
        at = 6 if udp else 16
        assert int.from_bytes(transport[at : at + 2]) == ones_complement_sum(pseudo)
        if udp:
            assert int.from_bytes(transport[4:6]) == len(transport)
        else:
            assert int.from_bytes(transport[4:8]) == 7 + number * together * 1200
        more = link_size(piece)[1] > 1
        assert piece[1] == (whole[1] if more else NO_GSO)


def super_packet(payload: bytes, *, udp: bool, ipv6: bool, tags: int = 0, segment: int = 1200) -> bytes:
    """What the kernel hands over for a `payload` of several segments: TCP with timestamps, or datagrams of one call."""
    protocol, size = (17, 8) if udp else (6, 32)
    length = size + len(payload)
    if ipv6:
        addresses = bytes(range(32))
        ip = struct.pack("!IHBB", 6 << 28, length, protocol, 64) + addresses
        pseudo = addresses + struct.pack("!II", length, protocol)
    else:
        addresses = bytes([10, 77, 0, 1, 10, 77, 0, 2])
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 100, 0x4000, 64, protocol, 0) + addresses
        ip = ip[:10] + struct.pack("!H", internet_checksum(ip)) + ip[12:]
        pseudo = addresses + struct.pack("!HH", protocol, length)
    partial = ones_complement_sum(pseudo)
    if udp:
        transport, gso_type = struct.pack("!HHHH", 1000, 2000, length, partial), UDP_SEGMENTS
    else:
        transport = struct.pack("!HHIIBBHHH", 1000, 2000, 7, 9, 8 << 4, 0x10, 500, partial, 0) + bytes(12)
        gso_type = TCP_IPV6 if ipv6 else TCP_IPV4
    ethernet = bytes(12) + bytes.fromhex("81000001") * tags + bytes.fromhex("86dd" if ipv6 else "0800")
    start = len(ethernet) + len(ip)
    header = HEADER.pack(NEEDS_CHECKSUM, gso_type, 128, segment, start, 6 if udp else 16)
    return header + ethernet + ip + transport + payload


def test_ipv6_extension_headers_are_copied() -> None:
    whole = super_packet(bytes(3000), udp=True, ipv6=True)
    ip = HEADER_SIZE + 14
    options = bytes([17, 1]) + bytes(14)  # 16 bytes of destination options, then UDP
    extended = whole[: ip + 4] + struct.pack("!HB", 3008 + 16, 60) + whole[ip + 7 : ip + 40] + options
    extended = HEADER.pack(NEEDS_CHECKSUM, UDP_SEGMENTS, 128, 1200, 54 + 16, 6) + extended[HEADER_SIZE:]
    pieces = split(extended + whole[ip + 40 :], 1)
    assert [len(piece) - HEADER_SIZE for piece in pieces] == [54 + 16 + 8 + size for size in (1200, 1200, 600)]
    assert [int.from_bytes(piece[ip + 4 : ip + 6]) for piece in pieces] == [16 + 8 + size for size in (1200, 1200, 600)]


def test_what_cannot_be_split_stays_whole() -> None:
    """A single packet, a type that the kernel does not hand over, and the packet of a tunnel: its inner headers follow
    others."""
    plain = tcp_packet(b"x")
    other = HEADER.pack(NEEDS_CHECKSUM, 3, 42, 1000, 34, 6) + tcp_packet(bytes(5000))[HEADER_SIZE:]
    inner = super_packet(bytes(5000), udp=False, ipv6=False)[HEADER_SIZE:]
    outer = super_packet(inner, udp=True, ipv6=False)[HEADER_SIZE:]
    tunnel = HEADER.pack(NEEDS_CHECKSUM, TCP_IPV4, 128, 1200, 42 + 34, 16) + outer
    for packet in (plain, other, tunnel):
        assert split(packet, 1) == [packet]


def test_corruption_flips_one_bit_and_the_checksum_finds_it() -> None:
    random = Random(3)
    packet = tcp_packet(Random(2).randbytes(1001))
    sound = completed(packet)
    for _ in range(200):
        damaged = corrupt(packet, random)
        assert damaged is not None
        assert HEADER.unpack_from(damaged)[:2] == (0, NO_GSO)  # to be verified by the receiver
        different = int.from_bytes(damaged[HEADER_SIZE:], "big") ^ int.from_bytes(sound[HEADER_SIZE:], "big")
        assert different.bit_count() == 1
        assert damaged[: HEADER_SIZE + 34][HEADER_SIZE:] == sound[: HEADER_SIZE + 34][HEADER_SIZE:]  # not the IP header
        assert not checksums_hold(damaged)


def test_corruption_of_a_super_packet_is_refused() -> None:
    assert corrupt(tcp_packet(bytes(3000)), Random(1)) is None


def test_corruption_of_other_protocols_spares_the_ethernet_header() -> None:
    request = bytes(HEADER_SIZE) + bytes.fromhex("ffffffffffff 02ed00000001 0806") + bytes(28)
    damaged = corrupt(request, Random(1))
    assert damaged is not None
    assert damaged[: HEADER_SIZE + 14] == request[: HEADER_SIZE + 14]
    assert damaged != request


@pytest.mark.parametrize("length", range(71))
def test_corruption_of_a_frame_of_any_length_keeps_its_length(length: int) -> None:
    for type_ in (b"\x08\x00", b"\x08\x06"):
        frame = (bytes(12) + type_ + b"\x4f" * 60)[:length]  # an IP header that claims to have 60 bytes
        damaged = corrupt(bytes(HEADER_SIZE) + frame, Random(length))
        assert damaged is not None
        assert len(damaged) == HEADER_SIZE + length
        assert damaged[: HEADER_SIZE + 14] == (bytes(HEADER_SIZE) + frame)[: HEADER_SIZE + 14]


def test_a_checksum_that_would_lie_outside_the_frame_is_not_completed() -> None:
    packet = HEADER.pack(NEEDS_CHECKSUM, NO_GSO, 0, 0, 34, 16) + bytes(30)
    damaged = corrupt(packet, Random(1))
    assert damaged is not None
    assert len(damaged) == len(packet)


def test_super_packets_are_known_by_their_headers() -> None:
    whole = tcp_packet(bytes(3000))
    assert is_super_packet(whole)
    assert is_super_packet(HEADER.pack(NEEDS_CHECKSUM, UDP_SEGMENTS, 42, 1000, 34, 6) + whole[HEADER_SIZE:])
    for gso_type, segment, start in ((TCP_IPV4, 0, 34), (TCP_IPV4, 1448, 0), (TCP_IPV4, 1448, 3000), (5, 1448, 60_000)):
        assert not is_super_packet(HEADER.pack(NEEDS_CHECKSUM, gso_type, 66, segment, start, 16) + whole[HEADER_SIZE:])
    short_tcp = bytearray(whole)
    short_tcp[HEADER_SIZE + 46] = 4 << 4  # a TCP header of 16 bytes
    assert not is_super_packet(bytes(short_tcp))
    assert not is_super_packet(whole + bytes(66_000))
    assert is_super_packet(tcp_packet(bytes(65_000), 36))
    assert not is_super_packet(tcp_packet(bytes(MOST_SEGMENTS + 1), 1))


@given(st.binary(min_size=10, max_size=10), st.binary(max_size=200), st.sampled_from((1, 3)))
def test_what_passes_for_a_super_packet_can_be_measured_and_cut(header: bytes, frame: bytes, together: int) -> None:
    packet = header[:1] + bytes([header[1] or TCP_IPV4]) + header[2:6] + bytes([34, 0]) + header[8:] + frame
    if is_super_packet(packet):
        assert link_size(packet)[1] <= MOST_SEGMENTS
        assert len(split(packet, together)) <= MOST_SEGMENTS


@pytest.mark.parametrize(
    ("destination", "kind", "body", "program"),
    [
        ("ffffffffffff", "0800", "45", True),  # IPv4 broadcast
        ("01005e0000fb", "0800", "45", True),  # mDNS
        ("333300000001", "86dd", "60" + "00" * 5 + "11", True),  # UDP
        ("333300000016", "86dd", "60" + "00" * 5 + "00", False),  # MLD
        ("3333ff000001", "86dd", "60" + "00" * 5 + "3a", False),  # neighbour discovery
        ("ffffffffffff", "0806", "00", False),  # ARP
        ("02ed0000000c", "0800", "45", False),
        ("ffff", "", "", False),
    ],
)
def test_packets_of_programs_to_groups(destination: str, kind: str, body: str, program: bool) -> None:
    source = "02ed0000000d" if kind else ""
    packet = bytes(HEADER_SIZE) + bytes.fromhex(destination + source + kind + body)
    assert is_to_a_group(packet) is program
