from __future__ import annotations

from orchestrator.drivers.hosts.environment import own_address


def test_a_host_is_reached_from_its_own_network() -> None:
    assert own_address("127.0.0.2") == "127.0.0.1"
