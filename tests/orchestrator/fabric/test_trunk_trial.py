"""The commands of a trunk without nodes. tests/swarm sends packets over one."""

from __future__ import annotations

import pytest

from orchestrator.errors import HostError
from orchestrator.fabric.trunk_trial import address_of, hub_lines, trunk_of

HOSTS = ["192.0.2.1", "192.0.2.2", "192.0.2.3"]


def test_each_hub_knows_the_others_and_where_they_are() -> None:
    trunk = trunk_of("doctor-1", 1, HOSTS, 1500)
    assert (trunk.local, trunk.mtu) == ("192.0.2.2", 1450)
    assert trunk.remotes == {"02:ed:ff:ff:00:00": "192.0.2.1", "02:ed:ff:ff:00:02": "192.0.2.3"}
    assert hub_lines(1, 3).splitlines() == [
        "link set trunk address 02:ed:ff:ff:00:01",
        "address add 10.77.0.2/16 dev trunk",
        "neigh replace 10.77.0.1 lladdr 02:ed:ff:ff:00:00 dev trunk nud permanent",
        "neigh replace 10.77.0.3 lladdr 02:ed:ff:ff:00:02 dev trunk nud permanent",
    ]


def test_many_hosts_have_an_address_each() -> None:
    assert address_of(254) == "10.77.0.255"  # an ordinary address: the network is a /16
    assert address_of(255) == "10.77.1.0"
    assert len({address_of(number) for number in range(1000)}) == 1000


def test_another_kind_of_address() -> None:
    with pytest.raises(HostError, match="not an IPv4 address"):
        trunk_of("doctor-1", 0, ["fd00::1"], 1500)
