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

from netem.profile import ETHERNET

HEADER = struct.Struct("=BBHHHH")  # flags, gso_type, hdr_len, gso_size, csum_start, csum_offset
HEADER_SIZE = HEADER.size
_ARP = b"\x08\x06"
_IPV6 = b"\x86\xdd"
_OWN_IPV6 = (0, 58)  # next headers of the kernel's own IPv6 packets: hop-by-hop options (MLD), ICMPv6

NEEDS_CHECKSUM = 1
NO_GSO = 0
TCP_IPV4 = 1
TCP_IPV6 = 4
UDP_SEGMENTS = 5  # UDP of IPv4 or IPv6 (UDP_SEGMENT in udp(7)); each segment is a datagram
EXPLICIT_CONGESTION = 0x80  # a flag in the type: only the first segment keeps CWR

IPV4_TYPE = b"\x08\x00"
_VLAN_TYPES = (b"\x81\x00", b"\x88\xa8")  # IEEE 802.1Q
VLAN_TAG = 4
# Bytes of these headers.
IPV4_SMALLEST = 20
IPV6_SIZE = 40
TCP_SMALLEST = 20
UDP = 8
# Protocols.
_TCP = 6
_UDP = 17
_PROTOCOLS = {TCP_IPV4: _TCP, TCP_IPV6: _TCP, UDP_SEGMENTS: _UDP}  # of the super-packets that are cut
_CHECKSUM_AT = {_TCP: 16, _UDP: 6}
_EXTENSIONS = (0, 43, 60)  # IPv6's hop-by-hop options, routing and destination options (RFC 8200)
FIN = 0x01
PUSH = 0x08
CWR = 0x80

MOST_SEGMENTS = 2000  # 64 KiB of 36 bytes, the minimum that Linux sends (tcp_min_snd_mss, less the timestamps)


def ones_complement_sum(data: bytes | bytearray | memoryview) -> int:
    """Sum of 16-bit words with end-around carry (RFC 1071), in 0..0xfffe: 0xffff, the other zero, becomes 0.

    2**16 is 1 modulo 0xffff, so the sum of the words is the whole number modulo 0xffff.
    """
    value = int.from_bytes(data, "big")
    if len(data) % 2:
        value <<= 8
    return value % 0xFFFF


def internet_checksum(data: bytes | bytearray | memoryview) -> int:
    """Internet checksum of data with a checksum field of zero; never 0, so it also suits UDP, where 0 means none."""
    return 0xFFFF - ones_complement_sum(data)


def is_to_a_group(packet: bytes) -> bool:
    """Whether a program has sent a packet to a broadcast or multicast address. A node's kernel also does so by itself:
    ARP, and the discovery of IPv6 neighbours, routers and groups."""
    start = HEADER_SIZE + ETHERNET
    if len(packet) < start or not packet[HEADER_SIZE] & 1:
        return False
    kind = packet[start - 2 : start]
    if kind == _ARP:
        return False
    if kind == _IPV6 and len(packet) > start + 6:
        return packet[start + 6] not in _OWN_IPV6
    return True


def is_super_packet(packet: bytes) -> bool:
    """Whether a packet marked as a super-packet is valid: its headers lie within it, and its segments are neither empty
    nor too many. A program with a raw socket may write any header; the other functions rely on this check.
    """
    segment: int
    _, gso_type, _, segment, start, _ = HEADER.unpack_from(packet)
    if not segment or start < ETHERNET + IPV4_SMALLEST:
        return False
    if len(packet) > HEADER_SIZE + ETHERNET + 0xFFFF:
        return False
    if gso_type & ~EXPLICIT_CONGESTION in (TCP_IPV4, TCP_IPV6):
        smallest = TCP_SMALLEST
    else:
        smallest = UDP
    smallest_end: int = HEADER_SIZE + start + smallest
    if smallest_end > len(packet):
        return False
    end = _headers_end(packet)
    if not smallest_end <= end <= len(packet):
        return False
    return len(packet) - end <= MOST_SEGMENTS * segment


def link_size(packet: bytes) -> tuple[int, int]:
    """(bytes, packets) on the link: frame bytes with the Ethernet header, without preamble and frame check sequence.

    A super-packet of n segments has its headers once, but each segment would have them: add them (n - 1) times.
    """
    size = len(packet) - HEADER_SIZE
    if packet[1] == NO_GSO:
        return size, 1
    headers = _headers_end(packet) - HEADER_SIZE
    _, _, _, segment, _, _ = HEADER.unpack_from(packet)
    payload = size - headers
    segments = max(1, -(-payload // segment))
    return size + (segments - 1) * headers, segments


def split(packet: bytes, segments: int) -> list[bytes]:
    """Cut a super-packet into packets of at most `segments` segments each, as segmentation offload would.

    TCP and UDP over IPv4 and IPv6 are cut, also with VLAN tags. Any other packet is returned whole: a tunnel's, because
    the kernel alone can repeat its headers. The receiver still has to complete the checksums.
    """
    flags, gso_type, _, segment, start, offset = HEADER.unpack_from(packet)
    protocol = _PROTOCOLS.get(gso_type & ~EXPLICIT_CONGESTION)
    if protocol is None or not flags & NEEDS_CHECKSUM:
        return [packet]
    end = _headers_end(packet)
    step = segment * segments
    if len(packet) - end <= step:
        return [packet]
    network = _network_header(packet)
    if not _leads_to(packet, network, HEADER_SIZE + start, protocol):
        return [packet]
    ip = network - HEADER_SIZE
    pieces = []
    for number, position in enumerate(range(end, len(packet), step)):
        payload = packet[position : position + step]
        frame = bytearray(packet[HEADER_SIZE:end])
        length = len(frame) - start + len(payload)  # of the transport's segment
        last = position + step >= len(packet)
        _set_length(frame, ip, start, number * segments, len(payload))
        if protocol == _TCP:
            _renumber(frame, start, number, number * step, last=last)
        else:
            struct.pack_into("!H", frame, start + 4, length)
        checksum = ones_complement_sum(_pseudo_header(frame, ip, protocol, length))
        struct.pack_into("!H", frame, start + _CHECKSUM_AT[protocol], checksum)
        if len(payload) > segment:
            header = HEADER.pack(flags, gso_type, len(frame), segment, start, offset)
        else:
            header = HEADER.pack(flags, NO_GSO, len(frame), 0, start, offset)
        pieces.append(header + frame + payload)
    return pieces


def corrupt(packet: bytes, random: Random) -> bytes | None:
    """Flip one bit behind the IP header (neither IPv4 nor IPv6: behind the Ethernet header), so that the receiver
    detects it. A frame with nothing behind its headers stays unchanged.

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
        checksum = internet_checksum(memoryview(damaged)[at:])
        struct.pack_into("!H", damaged, at + offset, checksum)
    HEADER.pack_into(damaged, 0, 0, NO_GSO, length, segment, 0, 0)
    first = _network_header(packet)
    kind = packet[first - 2 : first]
    if kind == IPV4_TYPE and first < len(packet):
        first += (packet[first] & 0x0F) * 4
    elif kind == _IPV6:
        first += IPV6_SIZE
    if first < len(damaged):
        place = random.randrange(first, len(damaged))
        damaged[place] ^= 1 << random.randrange(8)
    return bytes(damaged)


def _headers_end(packet: bytes) -> int:
    """Offset of a super-packet's payload; the header's hdr_len is only a hint (the linear part's length)."""
    gso_type = packet[1]
    start: int
    _, _, _, _, start, _ = HEADER.unpack_from(packet)
    transport = HEADER_SIZE + start
    if gso_type & ~EXPLICIT_CONGESTION in (TCP_IPV4, TCP_IPV6):
        words = packet[transport + 12] >> 4
        return transport + words * 4
    return transport + UDP


def _network_header(packet: bytes) -> int:
    """Offset of the IP header, behind VLAN tags."""
    start = HEADER_SIZE + ETHERNET
    while packet[start - 2 : start] in _VLAN_TYPES:
        start += VLAN_TAG
    return start


def _leads_to(
    packet: bytes,
    network: int,
    transport: int,
    protocol: int,
) -> bool:
    """Whether the transport header of this protocol follows the IP header; that of a tunnel's inner packet does not."""
    kind = packet[network - 2 : network]
    if transport < network + IPV4_SMALLEST:
        return False
    if kind == IPV4_TYPE:
        size = (packet[network] & 0x0F) * 4
        return network + size == transport and packet[network + 9] == protocol
    if kind != _IPV6 or network + IPV6_SIZE > transport:
        return False
    following = packet[network + 6]
    at = network + IPV6_SIZE
    while following in _EXTENSIONS and at < transport:
        following = packet[at]
        at = at + 8 + packet[at + 1] * 8
    return at == transport and following == protocol


def _set_length(
    frame: bytearray,
    network: int,
    transport: int,
    packets: int,
    payload: int,
) -> None:
    """Adapt the copied IP header to the piece that starts `packets` segments further on."""
    length = len(frame) - network + payload
    if frame[network - 2 : network] == _IPV6:
        struct.pack_into("!H", frame, network + 4, length - IPV6_SIZE)
        return
    (first,) = struct.unpack_from("!H", frame, network + 4)
    identification = first + packets & 0xFFFF
    struct.pack_into("!HH", frame, network + 2, length, identification)
    struct.pack_into("!H", frame, network + 10, 0)
    checksum = internet_checksum(frame[network:transport])
    struct.pack_into("!H", frame, network + 10, checksum)


def _renumber(
    frame: bytearray,
    transport: int,
    piece: int,
    skipped: int,
    *,
    last: bool,
) -> None:
    """Adapt the copied TCP header to the piece of this number, from 0, that starts `skipped` bytes further on."""
    (first,) = struct.unpack_from("!I", frame, transport + 4)
    sequence = first + skipped & 0xFFFFFFFF
    struct.pack_into("!I", frame, transport + 4, sequence)
    if not last:
        frame[transport + 13] &= ~(FIN | PUSH)
    if piece:
        frame[transport + 13] &= ~CWR


def _pseudo_header(
    frame: bytearray,
    network: int,
    protocol: int,
    length: int,
) -> bytes:
    """What the checksum of the transport covers besides its segment of this length (RFC 793, RFC 8200)."""
    if frame[network - 2 : network] == _IPV6:
        addresses = frame[network + 8 : network + IPV6_SIZE]
        rest = struct.pack("!II", length, protocol)
    else:
        addresses = frame[network + 12 : network + IPV4_SMALLEST]
        rest = struct.pack("!HH", protocol, length)
    return bytes(addresses) + rest
