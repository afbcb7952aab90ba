"""The TCP connections of a network namespace, from the kernel's tables."""

from __future__ import annotations

from pathlib import Path

from orchestrator.host.kernel.connections import MOST, connections_of

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
# 0A4D0001 is 10.77.0.1 in the byte order of the processor, so 0100 4D0A in a table of a little-endian one.
SYN_SENT = "   0: 02004D0A:8AE4 01004D0A:2328 02 00000001:00000000 01:00000064 00000003     0        0 1 2 0 1\n"
ESTABLISHED = "   1: 02004D0A:8AE6 01004D0A:2328 01 00000010:00000007 01:00000064 00000000     0        0 1 2 0 1\n"
LISTENING = "   2: 00000000:2328 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 1\n"
LOOPBACK = "   3: 0100007F:8AE8 0100007F:2328 01 00000000:00000000 00:00000000 00000000     0        0 1 2 0 1\n"
MAPPED = (
    "   0: 0000000000000000FFFF000001004D0A:2328 0000000000000000FFFF000002004D0A:8AE4"
    " 08 00000000:00000000 00:00000000 00000000     0        0 1 2 0 1\n"
)


def tables(tmp_path: Path, tcp: str, tcp6: str = HEAD) -> Path:
    net = tmp_path / "7" / "net"
    net.mkdir(parents=True)
    (net / "tcp").write_text(tcp)
    (net / "tcp6").write_text(tcp6)
    return tmp_path


def test_connections_in_trouble_come_first(tmp_path: Path) -> None:
    proc = tables(tmp_path, HEAD + LISTENING + LOOPBACK + ESTABLISHED + SYN_SENT, HEAD + MAPPED)
    waiting, sending, closed = connections_of(7, proc)
    assert waiting == {
        "state": "syn-sent",
        "local": "10.77.0.2:35556",
        "peer": "10.77.0.1:9000",
        "unacknowledged": 1,
        "unread": 0,
        "repeats": 3,
    }
    assert (sending["state"], sending["unacknowledged"], sending["unread"]) == ("established", 16, 7)
    assert (closed["state"], closed["local"], closed["peer"]) == ("close-wait", "10.77.0.1:9000", "10.77.0.2:35556")


def test_a_server_with_many_connections(tmp_path: Path) -> None:
    assert len(connections_of(7, tables(tmp_path, HEAD + ESTABLISHED * 100))) == MOST


def test_a_process_that_has_ended(tmp_path: Path) -> None:
    assert connections_of(8, tables(tmp_path, HEAD)) == []
