"""Ethernet frames in the format of packet sockets with PACKET_VNET_HDR: a virtio header, then the frame.

The header (struct virtio_net_hdr, virtio 1.2 section 5.1.6, native byte order) describes the work that the sender's
kernel left to the "hardware": a checksum to complete (from `csum_start`, stored `csum_offset` further on), and a
super-packet to cut into segments of `gso_size` payload bytes. A super-packet stands for all its segments, so on an
emulated link it occupies as many bytes as they would.

All functions are pure: packets in, packets out.
"""

from __future__ import annotations

import struct
from random import Random

HEADER = struct.Struct("=BBHHHH")  # flags, gso_type, hdr_len, gso_size, csum_start, csum_offset
HEADER_SIZE = HEADER.size
ETHERNET = 14
_ARP, _IPV6 = b"\x08\x06", b"\x86\xdd"
_OWN_IPV6 = (0, 58)  # next headers of the kernel's own IPv6 packets: hop-by-hop options (MLD), ICMPv6

NEEDS_CHECKSUM = 1
NO_GSO = 0
TCP_IPV4 = 1
TCP_IPV6 = 4
EXPLICIT_CONGESTION = 0x80  # a flag in the type: only the first segment keeps CWR

IPV4_TYPE = b"\x08\x00"
IPV4_SMALLEST, IPV6_SIZE, TCP_SMALLEST, UDP = 20, 40, 20, 8  # bytes of these headers
FIN, PUSH, CWR = 0x01, 0x08, 0x80

MOST_SEGMENTS = 2000  # 64 KiB of 36 bytes, the minimum that Linux sends (tcp_min_snd_mss, less the timestamps)


def ones_complement_sum(data: bytes | bytearray | memoryview) -> int:
    """Sum of 16-bit words with end-around carry (RFC 1071), in 0..0xfffe: 0xffff, the other zero, becomes 0.

    2**16 is 1 modulo 0xffff, so the sum of the words is the whole number modulo 0xffff.
    """
    value = int.from_bytes(data, "big")
    return (value << 8 if len(data) % 2 else value) % 0xFFFF


def internet_checksum(data: bytes | bytearray | memoryview) -> int:
    """Internet checksum of data whose checksum field is zero; never 0, so it also suits UDP, where 0 means none."""
    return 0xFFFF - ones_complement_sum(data)


def is_to_a_group(packet: bytes) -> bool:
    """Whether a program has sent a packet to a broadcast or multicast address. A node's kernel also does so by itself:
    ARP, and the discovery of IPv6 neighbours, routers and groups."""
    start = HEADER_SIZE + ETHERNET
    if len(packet) < start or not packet[HEADER_SIZE] & 1:
        return False
    kind = packet[start - 2 : start]
    return kind != _ARP and not (kind == _IPV6 and len(packet) > start + 6 and packet[start + 6] in _OWN_IPV6)


def is_super_packet(packet: bytes) -> bool:
    """Whether a packet marked as a super-packet is valid: its headers lie within it, and its segments are neither empty
    nor too many. A program with a raw socket may write any header; the other functions rely on this check.
    """
    segment: int
    _, gso_type, _, segment, start, _ = HEADER.unpack_from(packet)
    transport: int = HEADER_SIZE + start
    if not segment or start < ETHERNET + IPV4_SMALLEST or len(packet) > HEADER_SIZE + ETHERNET + 0xFFFF:
        return False
    smallest = TCP_SMALLEST if gso_type & ~EXPLICIT_CONGESTION in (TCP_IPV4, TCP_IPV6) else UDP
    if transport + smallest > len(packet):
        return False
    end = _headers_end(packet)
    return transport + smallest <= end <= len(packet) and len(packet) - end <= MOST_SEGMENTS * segment


def link_size(packet: bytes) -> tuple[int, int]:
    """(bytes, packets) on the link: frame bytes with the Ethernet header, without preamble and frame check sequence.

    A super-packet of n segments has its headers once, but each segment would have them: add them (n - 1) times.
    """
    size = len(packet) - HEADER_SIZE
    if packet[1] == NO_GSO:
        return size, 1
    headers = _headers_end(packet) - HEADER_SIZE
    segment = HEADER.unpack_from(packet)[3]
    segments = max(1, -(-(size - headers) // segment))
    return size + (segments - 1) * headers, segments


def split(packet: bytes, segments: int) -> list[bytes]:
    """Cut a super-packet into packets of at most `segments` segments each, as segmentation offload would.

    Only TCP over IPv4 is cut: a node's data0 makes no other super-packets, unless a program asks for UDP segmentation.
    Any other packet is returned whole. The receiver still has to complete the checksums.
    """
    flags, gso_type, _, segment, start, offset = HEADER.unpack_from(packet)
    if gso_type & ~EXPLICIT_CONGESTION != TCP_IPV4 or not flags & NEEDS_CHECKSUM:
        return [packet]
    end = _headers_end(packet)
    step = segment * segments
    if len(packet) - end <= step or packet[HEADER_SIZE + 12 : HEADER_SIZE + 14] != IPV4_TYPE:
        return [packet]
    pieces = []
    for number, position in enumerate(range(end, len(packet), step)):
        payload = packet[position : position + step]
        frame = bytearray(packet[HEADER_SIZE:end])
        last = position + step >= len(packet)
        _renumber(frame, start, number * segments, number * step, len(payload), last)
        again = len(payload) > segment
        header = HEADER.pack(flags, gso_type if again else NO_GSO, len(frame), segment if again else 0, start, offset)
        pieces.append(header + frame + payload)
    return pieces


def corrupt(packet: bytes, random: Random) -> bytes | None:
    """Flip one bit behind the IP header (neither IPv4 nor IPv6: behind the Ethernet header), so that the receiver
    detects it.
    A frame with nothing behind its headers stays unchanged.

    A checksum left to offload is first completed over the undamaged bytes, and the packet marked as unverified:
    otherwise the receiver would trust the damaged bytes. Returns None for a super-packet: its checksum cannot be
    completed here (split it first), and its receiver would reject all of it.
    """
    flags, gso_type, length, segment, start, offset = HEADER.unpack_from(packet)
    if gso_type != NO_GSO:
        return None
    damaged = bytearray(packet)
    at = HEADER_SIZE + start
    if flags & NEEDS_CHECKSUM and at + offset + 2 <= len(damaged):
        # The field already holds the sum of the pseudo-header, so it is part of the sum.
        struct.pack_into("!H", damaged, at + offset, internet_checksum(memoryview(damaged)[at:]))
    HEADER.pack_into(damaged, 0, 0, NO_GSO, length, segment, 0, 0)
    first = HEADER_SIZE + ETHERNET
    if packet[first - 2 : first] == IPV4_TYPE and first < len(packet):
        first += (packet[first] & 0x0F) * 4
    elif packet[first - 2 : first] == _IPV6:
        first += IPV6_SIZE
    if first < len(damaged):
        damaged[random.randrange(first, len(damaged))] ^= 1 << random.randrange(8)
    return bytes(damaged)


def _headers_end(packet: bytes) -> int:
    """Offset of a super-packet's payload; the header's hdr_len is only a hint (the linear part's length)."""
    gso_type = packet[1]
    start: int = HEADER.unpack_from(packet)[4]
    transport = HEADER_SIZE + start
    if gso_type & ~EXPLICIT_CONGESTION in (TCP_IPV4, TCP_IPV6):
        return transport + (packet[transport + 12] >> 4) * 4
    return transport + UDP


def _renumber(frame: bytearray, transport: int, packets: int, skipped: int, payload: int, last: bool) -> None:
    """Adapt the copied headers to the piece that begins `packets` segments and `skipped` bytes further on."""
    (identification,) = struct.unpack_from("!H", frame, ETHERNET + 4)
    length = len(frame) - ETHERNET + payload
    struct.pack_into("!HH", frame, ETHERNET + 2, length, identification + packets & 0xFFFF)
    struct.pack_into("!H", frame, ETHERNET + 10, 0)
    struct.pack_into("!H", frame, ETHERNET + 10, internet_checksum(frame[ETHERNET:transport]))
    (sequence,) = struct.unpack_from("!I", frame, transport + 4)
    struct.pack_into("!I", frame, transport + 4, sequence + skipped & 0xFFFFFFFF)
    if not last:
        frame[transport + 13] &= ~(FIN | PUSH)
    if packets:
        frame[transport + 13] &= ~CWR
    pseudo_header = frame[ETHERNET + 12 : ETHERNET + 20] + struct.pack("!HH", 6, len(frame) - transport + payload)
    struct.pack_into("!H", frame, transport + 16, ones_complement_sum(pseudo_header))
