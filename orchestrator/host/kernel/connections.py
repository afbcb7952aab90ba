"""The TCP connections of a process's network namespace, read from the kernel's tables. Nothing is sent.

The columns are those of Linux, Documentation/networking/proc_net_tcp.rst.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from orchestrator.host.kernel.ports import address_of, tcp_rows, unmapped

STATES = {  # net/tcp_states.h
    "01": "established",
    "02": "syn-sent",
    "03": "syn-received",
    "04": "fin-wait-1",
    "05": "fin-wait-2",
    "08": "close-wait",
    "09": "last-ack",
    "0B": "closing",
}
"""The states that are reported. Listeners, and what only waits for late packets, are not."""
MOST = 20  # connections of one node


Connection = dict[str, Any]


def connections_of(process: int, proc: Path = Path("/proc")) -> list[Connection]:
    """The connections in the network namespace of ``process``, those in trouble first; none if it has ended.

    Each has its ``state``, ``local`` and ``peer`` (address:port), ``unacknowledged`` bytes that the peer's kernel has
    not confirmed, ``unread`` bytes that the program has not taken, and ``repeats``, how often the oldest packet was
    sent again.
    """
    connections = list(_read(tcp_rows(process, proc)))
    connections.sort(key=_by_trouble)
    return connections[:MOST]


def _by_trouble(connection: Connection) -> tuple[int, int, str, str]:
    return (
        -connection["repeats"],
        -connection["unacknowledged"],
        connection["local"],
        connection["peer"],
    )


def _read(rows: Iterable[list[str]]) -> Iterator[Connection]:
    for columns in rows:
        state = STATES.get(columns[3])
        local = _endpoint(columns[1])
        peer = _endpoint(columns[2])
        if state is None or local is None or peer is None:
            continue
        sending, receiving = columns[4].split(":")
        yield {
            "state": state,
            "local": local,
            "peer": peer,
            "unacknowledged": int(sending, 16),
            "unread": int(receiving, 16),
            "repeats": int(columns[6], 16),
        }


def _endpoint(written: str) -> str | None:
    """An address and a port as people write them; None on the loopback interface, which no link shapes."""
    digits, _, port = written.partition(":")
    address = unmapped(address_of(digits))
    if address.is_loopback:
        return None
    host = f"[{address}]" if address.version == 6 else str(address)
    return f"{host}:{int(port, 16)}"
