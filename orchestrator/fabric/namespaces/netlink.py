"""The few lines of `ip -batch` that wire a node, without the process: its start takes three quarters of `ip`'s time.

A socket of rtnetlink(7) acts on the network namespace in which it was made.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Sequence
from typing import Self

# <linux/netlink.h>
REQUEST = 0x1
ACKNOWLEDGE = 0x4
CREATE = 0x400
REPLACE = 0x100
EXCLUSIVE = 0x200
# <linux/rtnetlink.h>
NEW_LINK = 16
NEW_ADDRESS = 20
DELETED_ADDRESS = 21
NEW_ROUTE = 24
NEW_NEIGHBOUR = 28
UP = 1
NO_DUPLICATE_DETECTION = 0x02  # <linux/if_addr.h>
NO_PREFIX_ROUTE = 0x200
MAIN_TABLE = 254
BOOT = 3
UNICAST = 1
UNREACHABLE = 7
SCOPE_UNIVERSE = 0
SCOPE_LINK = 253  # Linux has no such IPv6 routes
PERMANENT = 0x80

HEADER = struct.Struct("=IHHII")  # nlmsghdr
STATUS = struct.Struct("=i")  # of an acknowledgement: 0, or minus the number of an error
LINK = struct.Struct("=BxHiII")  # ifinfomsg
ADDRESS = struct.Struct("=BBBBi")  # ifaddrmsg
ROUTE = struct.Struct("=BBBBBBBBI")  # rtmsg
NEIGHBOUR = struct.Struct("=BxxxiHBB")  # ndmsg

Addressed = (
    ipaddress.IPv4Address
    | ipaddress.IPv6Address
    | ipaddress.IPv4Network
    | ipaddress.IPv6Network  # an interface's address is an address, too
)


class Netlink:
    """Runs lines in the network namespace in which it is opened."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def run(self, line: str) -> None:
        """OSError if the kernel refuses it, ValueError if it is not among the known ones."""
        try:
            kind, flags, body = message(line)
            size = HEADER.size + len(body)
            header = HEADER.pack(size, kind, REQUEST | ACKNOWLEDGE | flags, 0, 0)
            self._socket.send(header + body)
            answer = self._socket.recv(1 << 16)
            (refusal,) = STATUS.unpack_from(answer, HEADER.size)
            if refusal:
                raise OSError(-refusal, os.strerror(-refusal))
        except OSError as error:
            raise OSError(f"`ip {line}` failed ({error.strerror or error})") from None


def message(line: str) -> tuple[int, int, bytes]:
    """The type, the flags and the body of the message for a line of `ip -batch`."""
    match line.split():
        case ["link", "add", name, "mtu", mtu, "type", "veth", *peer]:
            body = veth_pair(line, name, mtu, peer)
            return NEW_LINK, CREATE | EXCLUSIVE, body
        case ["link", "set", name, "up"]:
            return NEW_LINK, 0, link(name, UP)
        case ["link", "set", name, "addrgenmode", "none"]:
            mode = attribute(8, b"\1")
            families = attribute(26, attribute(socket.AF_INET6, mode))
            return NEW_LINK, 0, link(name) + families
        case ["link", "set", name, "master", bridge]:
            index = socket.if_nametoindex(bridge)
            return NEW_LINK, 0, link(name) + attribute(10, number(index))
        case ["link", "set", name, "gso_max_segs", most]:
            return NEW_LINK, 0, link(name) + attribute(40, number(most))
        case ["addr", "add", address, "dev", name, "noprefixroute", *nodad]:
            flags = NO_PREFIX_ROUTE
            if nodad:
                flags |= NO_DUPLICATE_DETECTION
            body = interface_address(address, name)
            body += attribute(8, number(flags))
            return NEW_ADDRESS, CREATE | EXCLUSIVE, body
        case ["addr", "del", address, "dev", name]:
            return DELETED_ADDRESS, 0, interface_address(address, name)
        case ["route", "replace", to, "dev", name, "src", source, *metrics]:
            network = ipaddress.ip_network(to)
            scope = SCOPE_LINK if network.version == 4 else SCOPE_UNIVERSE
            body = route(network, scope, UNICAST)
            index = socket.if_nametoindex(name)
            body += attribute(4, number(index))
            body += attribute(7, ipaddress.ip_address(source).packed)
            return NEW_ROUTE, CREATE | REPLACE, body + metrics_of(metrics)
        case ["route", "replace", "unreachable", to]:
            network = ipaddress.ip_network(to)
            return NEW_ROUTE, CREATE | REPLACE, route(network, SCOPE_UNIVERSE, UNREACHABLE)
        case ["neigh", "replace", address, "lladdr", mac, "dev", name, "nud", "permanent"]:
            neighbour = ipaddress.ip_address(address)
            index = socket.if_nametoindex(name)
            body = NEIGHBOUR.pack(family_of(neighbour), index, PERMANENT, 0, 0)
            body += attribute(1, neighbour.packed)
            body += attribute(2, hardware(mac))
            return NEW_NEIGHBOUR, CREATE | REPLACE, body
    raise ValueError(f"no line for a node: {line}")


def veth_pair(
    line: str,
    name: str,
    mtu: str,
    peer: Sequence[str],
) -> bytes:
    """The body of a message that makes a pair. ``peer``: the words about its other end."""
    match peer:
        case ["peer", "name", far, "address", mac, *_, "netns", pid]:
            size = attribute(4, number(mtu))
            far_end = link() + attribute(3, text(far))
            far_end += attribute(1, hardware(mac)) + size
            far_end += attribute(19, number(pid))
            data = attribute(2, attribute(1, far_end))
            kind = attribute(1, text("veth"))
            veth = attribute(18, kind + data)
            return link() + attribute(3, text(name)) + size + veth
    raise ValueError(f"no line for a node: {line}")


def interface_address(address: str, name: str) -> bytes:
    """The body of a message about an address of an interface."""
    interface = ipaddress.ip_interface(address)
    prefix = interface.network.prefixlen
    index = socket.if_nametoindex(name)
    head = ADDRESS.pack(family_of(interface), prefix, 0, 0, index)
    body = head + attribute(2, interface.packed)
    return body + attribute(1, interface.packed)


def route(
    network: ipaddress.IPv4Network | ipaddress.IPv6Network,
    scope: int,
    kind: int,
) -> bytes:
    """The body of a message about a route to a network."""
    head = ROUTE.pack(
        family_of(network),
        network.prefixlen,
        0,
        0,
        MAIN_TABLE,
        BOOT,
        scope,
        kind,
        0,
    )
    return head + attribute(1, network.network_address.packed)


def metrics_of(words: Sequence[str]) -> bytes:
    """The attribute with the metrics of a route: ``mtu N``, ``congctl NAME``, both or none."""
    content = b""
    names = words[::2]
    values = words[1::2]
    for name, value in zip(names, values, strict=True):
        if name == "mtu":
            content += attribute(2, number(value))
        else:
            content += attribute(16, text(value))
    if not content:
        return b""
    return attribute(8, content)


def family_of(address: Addressed) -> int:
    """The address family of an address, an interface's address or a network."""
    return socket.AF_INET if address.version == 4 else socket.AF_INET6


def link(name: str = "", up: int = 0) -> bytes:
    """The head of a message about the interface, or about one that does not exist yet."""
    index = 0
    if name:
        index = socket.if_nametoindex(name)
    return LINK.pack(socket.AF_UNSPEC, 0, index, up, up)


def attribute(kind: int, content: bytes) -> bytes:
    """An attribute (rtattr), padded to four bytes."""
    head = struct.pack("=HH", 4 + len(content), kind)
    padding = bytes(-len(content) % 4)
    return head + content + padding


def number(value: int | str) -> bytes:
    return struct.pack("=I", int(value))


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def hardware(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))
