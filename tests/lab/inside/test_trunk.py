"""Links between hosts: the tests of `tests.orchestrator.fabric`, with exact times, also by the kernel engine."""

from __future__ import annotations

import json
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from netem.measurement.probe_plan import plan_probe
from netem.profile import LinkProfile
from orchestrator.fabric.base import Fabric
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.namespaces.wiring import wires_of
from orchestrator.fabric.tc.kernel import KernelFabric
from orchestrator.fabric.trunk import Trunk, create_trunk
from orchestrator.planning.plan import Plan
from tests.lab.inside.chance import SWITCHED
from tests.netem.measured import assert_as_asked, measure, wait_until
from tests.netem.traffic import datagrams, round_trips, transfer
from tests.orchestrator.fabric import test_trunk
from tests.orchestrator.fabric.hosts import MTU, Hosts, Laying, Opening
from tests.orchestrator.fabric.test_trunk import (
    TestFaults,
    TestPackets,
    hosts,
    userspace,
)

__all__ = ["TestFaults", "TestPackets", "hosts"]


ABILITIES: dict[str, bool] = {}  # of this kernel's netem


async def kernel(hub: Hub, run: str, directory: Path, plan: Plan, trunk: Trunk) -> Fabric:
    if not ABILITIES:
        tried = json.loads(await hub.run([sys.executable, "-m", "orchestrator.fabric.tc.netem_support"]))
        ABILITIES.update({key: tried[key] for key in ("seed", "duplicate_in_tree")})
    return await KernelFabric.open(hub, run, directory, wires_of(plan), trunk, **ABILITIES)


async def mixed(hub: Hub, run: str, directory: Path, plan: Plan, trunk: Trunk) -> Fabric:
    """The kernel engine on the first host, the userspace engine on the second."""
    return await (kernel if directory.name == "0" else userspace)(hub, run, directory, plan, trunk)


@pytest.fixture
def laying() -> Laying:
    return create_trunk


@pytest.fixture(scope="module", params=[kernel, userspace])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """The links from the cloud to 39 devices are told apart by a hash of the target's address."""
    nodes = ("cloud", "device-0", "device-1", "device-2", "device-38")
    with Hosts(tmp_path_factory.mktemp("hosts"), request.param, devices=40, attached=nodes) as made:
        yield made


class TestTime:
    def test_a_link_that_does_not_cross_hosts_has_its_latency(self, hosts: Hosts) -> None:
        assert round_trips(hosts, "device-0", "cloud", 60) == pytest.approx([0.020] * 60, abs=SWITCHED)

    def test_each_direction_is_shaped_once_at_its_sender(self, hosts: Hosts) -> None:
        up, down = LinkProfile(latency=0.020, rate=5e6), LinkProfile(latency=0.005)
        hosts.change("device-1", "cloud", up)
        hosts.change("cloud", "device-1", down)
        assert_as_asked(hosts, "device-1", "cloud", up, down, plan_probe(up, down, mtu=MTU))
        for number, host in enumerate(hosts.hosts):
            counted = hosts.do(host.fabric.counters())
            assert {hosts.homes[str(row["source"])] for row in counted.links} == {number}
            assert counted.from_trunk > 0

    def test_a_real_link_is_not_shaped(self, hosts: Hosts) -> None:
        """One way here: the other one keeps its 10 ms."""
        hosts.change("device-1", "cloud", LinkProfile(real=True))
        assert round_trips(hosts, "device-1", "cloud", 60) == pytest.approx([0.010] * 60, abs=SWITCHED)
        back = LinkProfile(latency=0.04)  # so that TCP gets no more than 400 Mbit/s with windows of 2 MB
        hosts.change("cloud", "device-1", back)
        found = measure(hosts, "device-1", "cloud", plan_probe(LinkProfile(real=True), back, mtu=MTU))
        assert found.forward.rate is not None
        assert found.forward.rate > 50e6


def test_none_is_lost_unasked(hosts: Hosts) -> None:
    before = hosts.do(hosts.fabric("cloud").counters()).from_trunk
    assert datagrams(hosts, "device-1", "cloud", 1000) == list(range(1000))
    assert hosts.do(hosts.fabric("cloud").counters()).from_trunk == before + 1000


def test_frames_of_strangers_and_of_pairs_without_a_link_are_dropped(hosts: Hosts) -> None:
    here, there, cloud = (hosts.plan.node(name) for name in ("device-0", "device-1", "cloud"))
    # An IPv4 header (RFC 791) without options: 20 bytes, of which the filters read the source.
    addresses = socket.inet_aton(there.address) + socket.inet_aton(cloud.address)
    packet = b"\x08\x00" + struct.pack("!BBHIHH", 0x45, 0, 20, 0, 0x4000, 0) + addresses + bytes(26)

    def passed() -> int:
        return hosts.do(hosts.fabric("cloud").counters()).from_trunk

    before = passed()
    hosts.inject("02:00:00:00:00:99", cloud.mac, content=packet)  # no node
    hosts.inject(here.mac, cloud.mac, content=packet)  # a node of this host
    hosts.inject(there.mac, here.mac, content=packet)  # no link
    hosts.inject(there.mac, cloud.mac, content=packet)  # nothing can tell this one from the node's own
    wait_until(lambda: passed() == before + 1)


def test_super_packets_arrive_whole(hosts: Hosts) -> None:
    hosts.change("device-1", "cloud", LinkProfile())
    hosts.change("cloud", "device-1", LinkProfile())
    data = Random(1).randbytes(4_000_000)
    assert transfer(hosts, "device-1", "cloud", data) == data


@pytest.mark.parametrize(("device", "latency"), [("device-1", 0.005), ("device-38", 0.03)])
def test_links_to_another_host_are_distinguished(hosts: Hosts, device: str, latency: float) -> None:
    hosts.change("cloud", device, LinkProfile(latency=latency))
    hosts.change(device, "cloud", LinkProfile())
    before = hosts.counters("cloud", device)["offered"]
    assert round_trips(hosts, device, "cloud", 20) == pytest.approx([latency] * 20, abs=SWITCHED)
    assert hosts.counters("cloud", device)["offered"] >= before + 20


def test_hosts_with_different_engines(tmp_path: Path) -> None:
    with Hosts(tmp_path, mixed, attached=("cloud", "device-0", "device-1")) as hosts:
        assert [host.fabric.engine for host in hosts.hosts] == ["kernel", "userspace"]
        for there, back in ((0.02, 0.0), (0.0, 0.03)):
            hosts.change("device-1", "cloud", LinkProfile(latency=there))
            hosts.change("cloud", "device-1", LinkProfile(latency=back))
            expected = [there + back] * 20
            assert round_trips(hosts, "device-1", "cloud", 20) == pytest.approx(expected, abs=SWITCHED)
            assert datagrams(hosts, "device-1", "cloud", 20) == list(range(20))
        assert datagrams(hosts, "device-0", "device-1", 5) == datagrams(hosts, "device-1", "device-0", 5) == []


class TestMoves(test_trunk.TestMoves):
    """With the kernel engine."""

    @pytest.fixture
    def engine(self) -> Opening:
        return kernel
