from __future__ import annotations

import fcntl
import socket
import time

import pytest

from netem.userspace import port as port_module
from netem.userspace.port import Port


@pytest.mark.parametrize("step", [0.0, 60.0, -60.0])
def test_a_wall_clock_that_is_set_makes_no_packet_late(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    """A packet waits for 2 ms, and meanwhile the clock of the kernel's stamps is set."""
    ours, other = socket.socketpair()
    wall, now = 1000.0, time.time

    def stamp(_fd: int, _request: int, buffer: bytearray) -> None:
        port_module._STAMP.pack_into(buffer, 0, int(wall), round(wall % 1 * 1e9))

    monkeypatch.setattr(port_module, "open_packets", lambda *_, **__: ours)
    monkeypatch.setattr(fcntl, "ioctl", stamp)
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)
    monkeypatch.setattr(time, "time", lambda: wall)
    port = Port("device-0", "v1", bytes(6))
    monkeypatch.setattr(time, "monotonic", lambda: 5.002)
    monkeypatch.setattr(time, "time", lambda: wall + 0.002 + step)
    waited = port.waited()
    monkeypatch.setattr(time, "time", now)
    other.close()
    port.close()
    assert waited == pytest.approx(0.002 if step >= 0 else 0.0, abs=1e-5)
