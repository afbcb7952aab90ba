"""Network address translation as far as it loses packets: a NAT forgets a flow that was idle for too long. Pure.

The NAT is in front of one node, at the end of its link. It lets in the packets of a flow of TCP or UDP that the node
has started, until no packet of the flow has passed in either direction for the time-out. After that it drops what comes
from outside, silently, until the node sends again: both ends keep their sockets, and neither receives an error. Ports
stay as they are (most NATs keep them if they can), so that a flow continues with the node's next packet.

A flow that the other end has started always passes, as with port forwarding. So does what has no ports: ICMP, ARP, and
later fragments of a packet.
"""

from __future__ import annotations

import math

from netem.profile import ETHERNET
from netem.userspace.frame import HEADER_SIZE, IPV4_SMALLEST, IPV4_TYPE, IPV6_SIZE

MOST_FLOWS = 65_536
"""The latest flows, which a NAT remembers. The end that sends next counts as the one that has started another flow."""

_TCP = 6
_UDP = 17
_IPV6_TYPE = b"\x86\xdd"
_IP = HEADER_SIZE + ETHERNET
_FRAGMENT_OFFSET = 0x1FFF
_PORTS = 4  # bytes of both

Flow = tuple[int, bytes, bytes]
"""The protocol's number, and the address and port of the inner end and of the outer end."""


class Nat:
    """The flows through one NAT. ``timeout``: in seconds. ``now`` is the time of any monotonic clock in seconds."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        # Time of the last packet, latest last; infinity for flows that the other end has started.
        self._last: dict[Flow, float] = {}

    def leaves(self, packet: bytes, now: float) -> bool:
        """Note a packet from the node. True: all of them pass."""
        ends = ends_of(packet)
        if ends is not None:
            self._note(ends, now)
        return True

    def admits(self, packet: bytes, now: float) -> bool:
        """Whether a packet to the node passes."""
        ends = ends_of(packet)
        if ends is None:
            return True
        protocol, source, target = ends
        flow = (protocol, target, source)
        last = self._last.get(flow, math.inf)
        if now - last > self._timeout:
            return False
        if flow in self._last:
            self._note(flow, now)
        else:
            self._note(flow, math.inf)
        return True

    def _note(self, flow: Flow, now: float) -> None:
        started_outside = self._last.pop(flow, 0.0) == math.inf
        self._last[flow] = math.inf if started_outside else now
        if len(self._last) > MOST_FLOWS:
            oldest = next(iter(self._last))
            del self._last[oldest]


def ends_of(packet: bytes) -> Flow | None:
    """The protocol, the source and the target of a frame with a virtio header; None without ports."""
    kind = packet[_IP - 2 : _IP]
    if kind == IPV4_TYPE and len(packet) >= _IP + IPV4_SMALLEST:
        protocol = packet[_IP + 9]
        transport = _IP + (packet[_IP] & 0x0F) * 4
        source = packet[_IP + 12 : _IP + 16]
        target = packet[_IP + 16 : _IP + 20]
        fragment = int.from_bytes(packet[_IP + 6 : _IP + 8], "big")
        later = fragment & _FRAGMENT_OFFSET
    elif kind == _IPV6_TYPE and len(packet) >= _IP + IPV6_SIZE:
        protocol = packet[_IP + 6]
        transport = _IP + IPV6_SIZE
        source = packet[_IP + 8 : _IP + 24]
        target = packet[_IP + 24 : _IP + 40]
        later = 0
    else:
        return None
    middle = transport + _PORTS // 2
    end = transport + _PORTS
    if protocol not in (_TCP, _UDP) or later or len(packet) < end:
        return None
    source_port = packet[transport:middle]
    target_port = packet[middle:end]
    return protocol, source + source_port, target + target_port
