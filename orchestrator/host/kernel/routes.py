"""The way from this host to another one, as its kernel chooses it. Nothing is sent."""

from __future__ import annotations

import socket

from orchestrator.errors import HostError

IP_MTU = 14  # of a connected socket (ip(7)); Python's module has no name for it
DISCARD = 9  # a port that is only looked up in routes, never used


def way_to(other: str) -> tuple[str, int]:
    """This host's IPv4 address towards another host, and the largest packet on the way there in bytes. HostError if
    there is no way."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        try:
            datagrams.connect((other, DISCARD))
        except OSError as error:
            raise HostError(f"there is no way from this host to {other} ({error.strerror})") from None
        own_address = datagrams.getsockname()[0]
        largest = datagrams.getsockopt(socket.IPPROTO_IP, IP_MTU)
    return str(own_address), largest
