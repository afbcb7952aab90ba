"""Tests of reading which ports are listened on."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from orchestrator.host.kernel.ports import listens

# Rows of proc(5): a listener on [::]:8000 (0x1F40) and a connection from port 8001.
TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr
   0: 00000000000000000000000000000000:1F40 00000000000000000000000000000000:0000 0A 00000000:00000000 00
   1: 00000000000000000000000001000000:1F41 00000000000000000000000001000000:1F40 01 00000000:00000000 00
"""


def test_a_port_is_listened_on_from_listen_to_close() -> None:
    with socket.socket() as server:
        server.bind(("localhost", 0))
        port = server.getsockname()[1]
        assert not listens(os.getpid(), port)
        server.listen()
        assert listens(os.getpid(), port)
    assert not listens(os.getpid(), port)


def test_listeners_on_ipv6_count_and_connections_do_not(tmp_path: Path) -> None:
    (tmp_path / "7" / "net").mkdir(parents=True)
    (tmp_path / "7" / "net" / "tcp6").write_text(TCP6)
    assert listens(7, 8000, tmp_path)
    assert not listens(7, 8001, tmp_path)


def test_a_process_that_is_gone_listens_on_nothing(tmp_path: Path) -> None:
    assert not listens(7, 80, tmp_path)
