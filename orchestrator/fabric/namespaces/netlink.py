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

REQUEST, ACKNOWLEDGE, CREATE, REPLACE, EXCLUSIVE = 0x1, 0x4, 0x400, 0x100, 0x200  # <linux/netlink.h>
NEW_LINK, NEW_ADDRESS, DELETED_ADDRESS, NEW_ROUTE, NEW_NEIGHBOUR = 16, 20, 21, 24, 28  # <linux/rtnetlink.h>
UP = 1
NO_DUPLICATE_DETECTION = 0x02  # <linux/if_addr.h>
NO_PREFIX_ROUTE = 0x200
MAIN_TABLE = 254
BOOT = 3
UNICAST = 1
UNREACHABLE = 7
SCOPE_UNIVERSE, SCOPE_LINK = 0, 253  # Linux has IPv6 routes of the first only
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
            self._socket.send(HEADER.pack(size, kind, REQUEST | ACKNOWLEDGE | flags, 0, 0) + body)
            (refusal,) = STATUS.unpack_from(self._socket.recv(1 << 16), HEADER.size)
            if refusal:
                raise OSError(-refusal, os.strerror(-refusal))
        except OSError as error:
            raise OSError(f"`ip {line}` failed ({error.strerror or error})") from None


def message(line: str) -> tuple[int, int, bytes]:
    """The type, the flags and the body of the message for a line of `ip -batch`."""
    match line.split():
        case ["link", "add", name, "mtu", mtu, "type", "veth", "peer", "name", far, "address", mac, *_, "netns", pid]:
            size = attribute(4, number(mtu))
            peer = link() + attribute(3, text(far)) + attribute(1, hardware(mac)) + size + attribute(19, number(pid))
            veth = attribute(1, text("veth")) + attribute(2, attribute(1, peer))
            return NEW_LINK, CREATE | EXCLUSIVE, link() + attribute(3, text(name)) + size + attribute(18, veth)
        case ["link", "set", name, "up"]:
            return NEW_LINK, 0, link(name, UP)
        case ["link", "set", name, "addrgenmode", "none"]:
            return NEW_LINK, 0, link(name) + attribute(26, attribute(socket.AF_INET6, attribute(8, b"\1")))
        case ["link", "set", name, "master", bridge]:
            return NEW_LINK, 0, link(name) + attribute(10, number(socket.if_nametoindex(bridge)))
        case ["link", "set", name, "gso_max_segs", most]:
            return NEW_LINK, 0, link(name) + attribute(40, number(most))
        case ["addr", "add", address, "dev", name, "noprefixroute", *nodad]:
            here = ipaddress.ip_interface(address)
            head = ADDRESS.pack(family_of(here), here.network.prefixlen, 0, 0, socket.if_nametoindex(name))
            own = attribute(2, here.packed) + attribute(1, here.packed)
            flags = NO_PREFIX_ROUTE | (NO_DUPLICATE_DETECTION if nodad else 0)
            return NEW_ADDRESS, CREATE | EXCLUSIVE, head + own + attribute(8, number(flags))
        case ["addr", "del", address, "dev", name]:
            here = ipaddress.ip_interface(address)
            head = ADDRESS.pack(family_of(here), here.network.prefixlen, 0, 0, socket.if_nametoindex(name))
            return DELETED_ADDRESS, 0, head + attribute(2, here.packed) + attribute(1, here.packed)
        case ["route", "replace", to, "dev", name, "src", source, *metrics]:
            network = ipaddress.ip_network(to)
            family = family_of(network)
            scope = SCOPE_LINK if family == socket.AF_INET else SCOPE_UNIVERSE
            head = ROUTE.pack(family, network.prefixlen, 0, 0, MAIN_TABLE, BOOT, scope, UNICAST, 0)
            head += attribute(1, network.network_address.packed)
            way = attribute(4, number(socket.if_nametoindex(name))) + attribute(7, ipaddress.ip_address(source).packed)
            return NEW_ROUTE, CREATE | REPLACE, head + way + metrics_of(metrics)
        case ["route", "replace", "unreachable", to]:
            network = ipaddress.ip_network(to)
            head = ROUTE.pack(
                family_of(network), network.prefixlen, 0, 0, MAIN_TABLE, BOOT, SCOPE_UNIVERSE, UNREACHABLE, 0
            )
            return NEW_ROUTE, CREATE | REPLACE, head + attribute(1, network.network_address.packed)
        case ["neigh", "replace", address, "lladdr", mac, "dev", name, "nud", "permanent"]:
            neighbour = ipaddress.ip_address(address)
            head = NEIGHBOUR.pack(family_of(neighbour), socket.if_nametoindex(name), PERMANENT, 0, 0)
            ends = attribute(1, neighbour.packed) + attribute(2, hardware(mac))
            return NEW_NEIGHBOUR, CREATE | REPLACE, head + ends
    raise ValueError(f"no line for a node: {line}")


def metrics_of(words: Sequence[str]) -> bytes:
    """The attribute with the metrics of a route: ``mtu N``, ``congctl NAME``, both or none."""
    content = b""
    for name, value in zip(words[::2], words[1::2], strict=True):
        content += attribute(2, number(value)) if name == "mtu" else attribute(16, text(value))
    return attribute(8, content) if content else b""


def family_of(address: Addressed) -> int:
    """The address family of an address, an interface's address or a network."""
    return socket.AF_INET if address.version == 4 else socket.AF_INET6


def link(name: str = "", up: int = 0) -> bytes:
    """The head of a message about the interface, or about one that does not exist yet."""
    return LINK.pack(socket.AF_UNSPEC, 0, socket.if_nametoindex(name) if name else 0, up, up)


def attribute(kind: int, content: bytes) -> bytes:
    """An attribute (rtattr), padded to four bytes."""
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def number(value: int | str) -> bytes:
    return struct.pack("=I", int(value))


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def hardware(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))
