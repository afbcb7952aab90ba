"""The addresses on which a process listens on a TCP port, read from the kernel's tables. Nothing is sent."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterator
from pathlib import Path

from orchestrator.host.kernel.small_files import text_of

LISTENING = "0A"  # TCP_LISTEN in net/tcp_states.h
WORD = 8  # hexadecimal digits; the kernel prints addresses as words of this processor's byte order


def listening_on(
    process: int,
    port: int,
    proc: Path = Path("/proc"),
) -> list[str]:
    """The addresses on which a process in the network namespace of ``process`` listens on a TCP port; none if that has
    ended."""
    addresses = []
    for columns in tcp_rows(process, proc):
        local = columns[1]
        state = columns[3]
        address, _, number = local.partition(":")
        if state == LISTENING and int(number, 16) == port:
            addresses.append(address_of(address))
    return addresses


def tcp_rows(process: int, proc: Path) -> Iterator[list[str]]:
    """The columns of each row of the TCP tables in the network namespace of ``process``; none if that has ended."""
    for name in ("tcp", "tcp6"):
        table = text_of(proc / str(process) / "net" / name) or ""
        for row in table.splitlines()[1:]:
            yield row.split()


def is_loopback(address: str) -> bool:
    """Whether only processes in the same network namespace reach a listener on this address."""
    return unmapped(address).is_loopback


def unmapped(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address; of a socket for both versions, which has IPv4 mapped into IPv6, the one of IPv4."""
    parsed = ipaddress.ip_address(address)
    if parsed.version == 6 and parsed.ipv4_mapped is not None:
        return parsed.ipv4_mapped
    return parsed


def address_of(digits: str) -> str:
    """An address as people write it, from the digits in the kernel's tables."""
    packed = b""
    for start in range(0, len(digits), WORD):
        end = start + WORD
        word = int(digits[start:end], 16)
        packed += word.to_bytes(4, sys.byteorder)
    return str(ipaddress.ip_address(packed))
