from __future__ import annotations

import pytest

from orchestrator.errors import HostError
from orchestrator.host.kernel.routes import way_to


def test_a_host_is_reached_from_its_own_network() -> None:
    address, largest = way_to("127.0.0.2")
    assert address == "127.0.0.1"
    assert largest >= 65535  # that of the loopback is 65,536, and a packet of IP has at most 65,535 bytes


def test_a_host_without_a_way_to_it() -> None:
    with pytest.raises(HostError, match=r"this host to 255.255.255.255"):
        way_to("255.255.255.255")
