"""Tests of reading which ports are listened on."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from orchestrator.host.kernel.ports import is_loopback, listening_on

# Rows of proc(5): a listener on [::]:8000 (0x1F40) and a connection from port 8001.
TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr
   0: 00000000000000000000000000000000:1F40 00000000000000000000000000000000:0000 0A 00000000:00000000 00
   1: 00000000000000000000000001000000:1F41 00000000000000000000000001000000:1F40 01 00000000:00000000 00
"""


def test_a_port_is_bound_from_listen_to_close() -> None:
    with socket.socket() as server:
        server.bind(("localhost", 0))
        port = server.getsockname()[1]
        assert listening_on(os.getpid(), port) == []
        server.listen()
        assert listening_on(os.getpid(), port) == ["127.0.0.1"]
    assert listening_on(os.getpid(), port) == []


@pytest.mark.parametrize("address", ["::1", "::"])
def test_addresses_of_ipv6_are_read(address: str) -> None:
    with socket.create_server((address, 0), family=socket.AF_INET6) as server:
        assert listening_on(os.getpid(), server.getsockname()[1]) == [address]
    assert is_loopback(address) == (address != "::")


def test_an_ipv4_listener_of_an_ipv6_socket_may_be_on_loopback(tmp_path: Path) -> None:
    (tmp_path / "7" / "net").mkdir(parents=True)
    words = (0, 0, 0xFFFF0000, 0x0100007F) if sys.byteorder == "little" else (0, 0, 0xFFFF, 0x7F000001)
    row = TCP6.replace("0" * 32, "".join(f"{word:08X}" for word in words), 1)
    (tmp_path / "7" / "net" / "tcp6").write_text(row)
    (address,) = listening_on(7, 8000, tmp_path)
    assert is_loopback(address)


def test_listeners_on_ipv6_count_and_connections_do_not(tmp_path: Path) -> None:
    (tmp_path / "7" / "net").mkdir(parents=True)
    (tmp_path / "7" / "net" / "tcp6").write_text(TCP6)
    assert listening_on(7, 8000, tmp_path) == ["::"]
    assert listening_on(7, 8001, tmp_path) == []


def test_a_process_that_is_gone_has_no_ports(tmp_path: Path) -> None:
    assert listening_on(7, 80, tmp_path) == []
