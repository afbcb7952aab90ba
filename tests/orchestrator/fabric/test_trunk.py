"""Links between hosts: the commands that create a trunk, then the userspace engine with real packets over a trunk. How
exact they are is measured in virtual time: `tests/lab/inside/test_trunk.py`."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from netem.measurement.intervals import binomial_range
from netem.profile import LinkProfile
from orchestrator.errors import ChildError, FabricError, HostError
from orchestrator.fabric.base import Fabric
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.namespaces.wiring import wires_of
from orchestrator.fabric.trunk import (
    PORT,
    Carrier,
    Trunk,
    create_trunk,
    create_trunk_by_process,
    forwarding_lines,
    host_lines,
    id_of,
    mtu_of,
)
from orchestrator.fabric.userspace import UserspaceFabric
from orchestrator.host.kernel.virtual_time import in_virtual_time
from orchestrator.planning.plan import Plan
from tests.netem.measured import settled, wait_until
from tests.netem.tools import Tools, needs_tools
from tests.netem.traffic import datagrams, goodput, round_trips, transfer
from tests.netem.wiring import Namespace, NamespacesRefusedError
from tests.orchestrator.fabric.hosts import MTU, RUN, Hosts, Laying, Opening, vxlan_header

netns = pytest.mark.netns

TRUNK = Trunk("192.0.2.1", 0xED, {"02:ed:00:00:00:02": "192.0.2.2", "02:ed:00:00:00:03": "192.0.2.3"}, 1450)
BUSY = 50e-6 if in_virtual_time() else 0.015
"""Seconds; what a round trip may take longer on a busy machine. In tests.lab these tests run in virtual time."""

PAYLOAD = (MTU - 52) / (MTU + 14)  # of TCP: less the headers of IP and TCP and its timestamps; plus that of Ethernet
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2  # <linux/in.h>


def test_one_command_makes_the_device_in_the_hub() -> None:
    assert host_lines(TRUNK, 4711) == (
        "link add trunk netns 4711 mtu 1450 type vxlan id 237 local 192.0.2.1 dstport 61147 nolearning\n"
    )


def test_the_device_knows_the_host_of_each_remote_node() -> None:
    assert forwarding_lines(TRUNK.remotes).splitlines() == [
        "fdb replace 02:ed:00:00:00:02 dev trunk self static dst 192.0.2.2",
        "fdb replace 02:ed:00:00:00:03 dev trunk self static dst 192.0.2.3",
    ]


def test_the_identifier_is_of_the_run_and_has_24_bits() -> None:
    identifiers = {id_of(f"run-{number}") for number in range(100)}
    assert len(identifiers) == 100
    assert all(0 <= each < 2**24 for each in identifiers)
    assert id_of("run-7") == id_of("run-7")


def test_the_nodes_packets_leave_room_for_the_trunks_headers() -> None:
    # 14 of the inner Ethernet header, 20 of IPv4 (RFC 791), 8 of UDP (RFC 768), 8 of VXLAN (RFC 7348).
    assert mtu_of(1500) == 1500 - 14 - 20 - 8 - 8
    assert mtu_of(1500, key=True) == mtu_of(1500) - 16  # bytes of the tag


def test_a_name_is_no_address_of_the_underlay() -> None:
    with pytest.raises(HostError, match="'pi-7' is not an IPv4 address"):
        Trunk("192.0.2.1", 1, {"02:ed:00:00:00:02": "pi-7"}, 1450)


async def userspace(hub: Hub, run: str, directory: Path, plan: Plan, trunk: Trunk) -> Fabric:
    return await UserspaceFabric.open(hub, run, directory, wires_of(plan), trunk)


@contextlib.contextmanager
def namespaces() -> Iterator[None]:
    """A host that refuses namespaces skips the test, but fails it where CI is set."""
    try:
        yield
    except (HostError, NamespacesRefusedError) as error:
        if "CI" in os.environ:
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with namespaces():
        made = Hosts(tmp_path_factory.mktemp("hosts"), userspace)
    with made:
        yield made


@pytest.fixture
def hosts(shared: Hosts) -> Hosts:
    """All links as planned."""
    for link in shared.plan.links:
        if not {link.source, link.target} <= shared.nodes.keys():
            continue
        shared.change(link.source, link.target, link.profile)
        shared.do(shared.fabric(link.source).restore(link.source, link.target))
    return shared


@netns
class TestPackets:
    def test_all_that_is_sent_over_the_trunk_is_counted_where_it_arrives(self, hosts: Hosts) -> None:
        def counted() -> tuple[int, int]:
            sent = hosts.do(hosts.fabric("device-1").counters()).sent_to
            came = hosts.do(hosts.fabric("cloud").counters()).came_from
            assert sent is not None
            assert came is not None
            return sent["cloud"], came["device-1"]

        for ends in (("device-1", "cloud"), ("cloud", "device-1")):
            hosts.change(*ends, LinkProfile())
        sent, came = counted()
        data = Random(1).randbytes(2_000_000)
        assert transfer(hosts, "device-1", "cloud", data) == data
        wait_until(lambda: counted()[0] - sent == counted()[1] - came)
        assert counted()[0] - sent >= len(data) / MTU  # also if they came as super-packets

    def test_losses_are_those_of_the_sender(self, hosts: Hosts) -> None:
        hosts.change("device-1", "cloud", LinkProfile(loss=0.2))
        before = hosts.counters("device-1", "cloud")
        arrived = datagrams(hosts, "device-1", "cloud", 500)
        after = hosts.counters("device-1", "cloud")
        assert after["delivered"] - before["delivered"] == len(arrived)
        # Mean 100, standard deviation 8.9, of which 4.4 are allowed.
        assert 60 <= after["lost"] - before["lost"] == 500 - len(arrived) <= 140

    def test_full_packets_pass_whole_and_larger_ones_are_refused(self, hosts: Hosts) -> None:
        with hosts.bound("device-1", socket.SOCK_DGRAM) as near, hosts.bound("cloud", socket.SOCK_DGRAM) as far:
            near.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
            near.connect(far.getsockname())
            near.send(bytes(MTU - 28))  # less the headers of IP and UDP
            assert len(far.recv(2000)) == MTU - 28
            with pytest.raises(OSError, match="too long") as refused:
                near.send(bytes(MTU - 27))
        assert refused.value.errno == errno.EMSGSIZE

    def test_nodes_without_a_link_cannot_reach_each_other(self, hosts: Hosts) -> None:
        node = hosts.plan.node("device-1")
        for other in ("device-0", "device-2"):  # on the other host, and on the same one
            hosts.nodes[other].run(
                *("ip", "neigh", "replace", node.address, "lladdr", node.mac, "dev", "data0", "nud", "permanent")
            )
            assert datagrams(hosts, other, "device-1", 5) == []


@netns
class TestFaults:
    @pytest.mark.parametrize("ends", [("device-1", "cloud"), ("cloud", "device-1")])
    def test_cut_and_restore(self, hosts: Hosts, ends: tuple[str, str]) -> None:
        hosts.do(hosts.fabric(ends[0]).cut(*ends))
        assert datagrams(hosts, *ends, 10) == []
        assert datagrams(hosts, ends[1], ends[0], 10) == list(range(10))
        assert datagrams(hosts, "device-2", "cloud", 10) == list(range(10))
        hosts.do(hosts.fabric(ends[0]).restore(*ends))
        assert datagrams(hosts, *ends, 10) == list(range(10))

    def test_a_real_link_is_cut_and_restored(self, hosts: Hosts) -> None:
        ends = "device-1", "cloud"
        hosts.change(*ends, LinkProfile(real=True))
        before = hosts.counters(*ends)
        hosts.do(hosts.fabric(ends[0]).cut(*ends))
        assert datagrams(hosts, *ends, 10) == []
        hosts.do(hosts.fabric(ends[0]).restore(*ends))
        assert datagrams(hosts, *ends, 10) == list(range(10))
        after = hosts.counters(*ends)
        assert (after["cut_dropped"] - before["cut_dropped"], after["lost"] - before["lost"]) == (10, 0)

    def test_only_the_host_of_the_sender_can_change_a_link(self, hosts: Hosts) -> None:
        with pytest.raises(FabricError, match="link device-1 -> cloud"):
            hosts.do(hosts.fabric("cloud").cut("device-1", "cloud"))

    @pytest.mark.parametrize("node", ["device-1", "cloud"])
    def test_a_restarted_node_is_reached_again(self, hosts: Hosts, node: str) -> None:
        hosts.end(node)
        hosts.attach(node)
        settled(lambda: statistics.median(round_trips(hosts, "device-1", "cloud", 20)), 0.020, 0.020 + BUSY)


@netns
class TestStrangers:
    def counted(self, hosts: Hosts) -> tuple[int, int]:
        counted = hosts.do(hosts.fabric("cloud").counters())
        return counted.from_trunk, counted.from_strangers

    def test_a_source_that_is_no_node_of_another_host_is_dropped_and_counted(self, hosts: Hosts) -> None:
        here, cloud = (hosts.plan.node(name).mac for name in ("device-0", "cloud"))
        passed, strange = self.counted(hosts)
        for source in ("02:00:00:00:00:99", here):
            hosts.inject(source, cloud, count=3)
        wait_until(lambda: self.counted(hosts) == (passed, strange + 6))

    def test_a_pair_without_a_link_and_another_run_are_dropped(self, hosts: Hosts) -> None:
        here, there, cloud = (hosts.plan.node(name).mac for name in ("device-0", "device-1", "cloud"))
        passed, strange = self.counted(hosts)
        hosts.inject(there, here)
        hosts.inject(there, cloud, run="another")
        hosts.inject(there, cloud)  # nothing can tell this one from the node's own
        wait_until(lambda: self.counted(hosts) == (passed + 1, strange))

    def test_datagrams_that_are_no_packets_of_a_trunk_change_nothing(self, hosts: Hosts) -> None:
        header, node = vxlan_header(RUN), bytes.fromhex(hosts.plan.node("device-1").mac.replace(":", ""))
        passed, strange = self.counted(hosts)
        hosts.write([b"", b"\xff", bytes(8), b"\xf7" * 1400, header[:7], header, header + node, bytes(8) + node * 20])
        hosts.write([header + node * 2] * 100)  # an empty frame from the node to itself, again and again
        assert datagrams(hosts, "device-1", "cloud", 50) == list(range(50))
        assert self.counted(hosts) == (passed + 50, strange)


@netns
async def test_a_second_trunk_of_a_run_is_refused_and_the_first_ends_with_its_hub(tmp_path: Path) -> None:
    with namespaces():
        hub = await Hub.open(RUN, tmp_path)
    outside = Namespace([*hub.enter(), "unshare", "-n"], user=not hub.privileged)
    try:
        await create_trunk(TRUNK, hub, RUN, tmp_path, outside.pid)
        assert f":{PORT}" in outside.run("ss", "-uan")
        with pytest.raises(HostError, match=r"cannot be made .*exists"):
            await create_trunk(TRUNK, hub, RUN, tmp_path, outside.pid)
        await hub.close()
        wait_until(lambda: f":{PORT}" not in outside.run("ss", "-uan"), 20.0)
    finally:
        await hub.close()
        outside.close()


@netns
class TestAProcess:
    """It carries the trunk of the second host, as where a kernel has no VXLAN. The first host has the kernel's."""

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
        with namespaces():
            made = Hosts(tmp_path_factory.mktemp("hosts"), userspace, laying=(create_trunk, create_trunk_by_process))
        with made:
            yield made

    def test_packets_pass_both_ways_and_links_keep_their_latency(self, hosts: Hosts) -> None:
        settled(lambda: statistics.median(round_trips(hosts, "device-1", "cloud", 20)), 0.020, 0.020 + BUSY)
        assert datagrams(hosts, "cloud", "device-1", 20) == list(range(20))

    @pytest.mark.parametrize("ends", [("device-1", "cloud"), ("cloud", "device-1")])
    def test_super_packets_arrive_whole(self, hosts: Hosts, ends: tuple[str, str]) -> None:
        for one, other in (ends, ends[::-1]):
            hosts.change(one, other, LinkProfile())
        data = os.urandom(4_000_000)
        assert transfer(hosts, *ends, data) == data

    @pytest.mark.programs("ping")
    def test_packets_of_full_size_pass_and_larger_ones_do_not(self, hosts: Hosts) -> None:
        def echoed(size: int) -> bool:
            """``size``: of an echo, less the headers of IPv4 and ICMP."""
            ping = ["ping", "-n", "-c", "1", "-W", "2", "-M", "do", "-s", str(size), hosts.address("cloud")]
            return "1 received" in hosts.nodes["device-1"].run(*ping, check=False)

        assert echoed(MTU - 28)
        assert not echoed(MTU - 27)

    def test_strangers_are_dropped(self, hosts: Hosts) -> None:
        device, cloud = (hosts.plan.node(name).mac for name in ("device-1", "cloud"))
        with hosts.hosts[0].outside.socket(socket.SOCK_DGRAM) as underlay:
            for packet in (b"", b"garbage", bytes(2000)):
                underlay.sendto(packet, (hosts.hosts[1].trunk.local, PORT))
        hosts.inject(cloud, device, run="another")
        assert datagrams(hosts, "cloud", "device-1", 5) == list(range(5))

    def test_with_a_key_packets_pass_and_without_it_none_does(self, tmp_path: Path) -> None:
        async def keyed(trunk: Trunk, hub: Hub, run: str, directory: Path, host: int) -> Carrier:
            return await create_trunk(
                replace(trunk, mtu=mtu_of(1500, key=True), key="0f" * 32), hub, run, directory, host
            )

        with Hosts(tmp_path, userspace, laying=(keyed, keyed)) as hosts:
            assert datagrams(hosts, "device-1", "cloud", 20) == list(range(20))
            before = hosts.do(hosts.fabric("cloud").counters()).from_trunk
            hosts.inject(hosts.plan.node("device-1").mac, hosts.plan.node("cloud").mac, count=3)
            assert datagrams(hosts, "device-1", "cloud", 5) == list(range(5))
            assert hosts.do(hosts.fabric("cloud").counters()).from_trunk == before + 5

    def test_its_end_is_reported(self, tmp_path: Path) -> None:
        with Hosts(tmp_path, userspace, attached=("cloud",), laying=(create_trunk, create_trunk_by_process)) as hosts:
            carrier = hosts.hosts[1].carrier
            assert "no VXLAN" in carrier.notes()[0]
            hosts.do(carrier.close())
            with pytest.raises(ChildError, match="the trunk ended"):
                hosts.do(carrier.watch())


@pytest.fixture
def engine() -> Opening:
    return userspace


@pytest.fixture(params=[create_trunk, create_trunk_by_process])
def laying(request: pytest.FixtureRequest) -> Laying:
    return request.param  # type: ignore[no-any-return]


THREE = {"cloud": 0, "device-0": 0, "device-1": 1, "device-2": 2}


class OfThreeHosts:
    """Of three hosts, the second is lost. Its node moves to another one, and what was of it there still sends."""

    @pytest.fixture
    def hosts(self, tmp_path: Path, engine: Opening, laying: Laying) -> Iterator[Hosts]:
        with namespaces():
            made = Hosts(tmp_path, engine, laying=[laying] * 3, homes=THREE)
        with made:
            assert datagrams(made, "device-1", "cloud", 5) == list(range(5))
            assert datagrams(made, "cloud", "device-1", 5) == list(range(5))
            yield made


@netns
class TestMoves(OfThreeHosts):
    def test_to_a_third_host(self, hosts: Hosts) -> None:
        """For the host of the cloud it was, and is, a node of another host."""
        move(hosts, "device-1", 2)
        for ends in (("device-1", "cloud"), ("cloud", "device-1")):
            assert datagrams(hosts, *ends, 20) == list(range(20))
        settled(lambda: statistics.median(round_trips(hosts, "device-1", "cloud", 20)), 0.020, 0.020 + BUSY)
        assert {str(row["source"]) for row in hosts.do(hosts.hosts[2].fabric.counters()).links} == {
            "device-1",
            "device-2",
        }
        hosts.do(hosts.fabric("device-1").cut("device-1", "cloud"))
        assert datagrams(hosts, "device-1", "cloud", 5) == []


@netns
class TestMovesHome(OfThreeHosts):
    def test_to_the_host_of_its_peer(self, hosts: Hosts) -> None:
        """Nothing of it passes the trunk any more."""
        hosts.change("cloud", "device-1", LinkProfile(latency=0.030))
        move(hosts, "device-1", 0)
        hosts.change("cloud", "device-1", LinkProfile(latency=0.030))
        before = hosts.do(hosts.hosts[0].fabric.counters())
        settled(lambda: statistics.median(round_trips(hosts, "device-1", "cloud", 20)), 0.040, 0.040 + BUSY)
        after = hosts.do(hosts.hosts[0].fabric.counters())
        assert after.from_trunk == before.from_trunk
        assert after.sent_to is None or set(after.sent_to) == {"device-2"}
        assert datagrams(hosts, "device-2", "cloud", 20) == list(range(20))  # as before


def move(hosts: Hosts, node: str, to: int) -> None:
    """Move a node to another host. Its earlier life has no conversation with anybody from then on."""
    with hosts.bound("cloud", socket.SOCK_STREAM) as listening, hosts.bound("cloud", socket.SOCK_DGRAM) as far:
        listening.listen()
        hosts.move(node, to)
        earlier, far_address = hosts.left[node], far.getsockname()
        with (
            earlier.socket(socket.SOCK_STREAM, (hosts.address(node), 0)) as stream,
            earlier.socket(socket.SOCK_DGRAM, (hosts.address(node), 4711)) as near,
        ):
            near.settimeout(0.5)
            far.sendto(b"for the node", near.getsockname())
            with pytest.raises(TimeoutError):
                near.recv(100)  # what is sent to the node goes where it lives now
            stream.settimeout(1.0)
            with pytest.raises(OSError, match="timed out"):
                stream.connect(listening.getsockname())
            near.sendto(b"from the past", far_address)
            far.settimeout(0.5)
            if to == hosts.homes["cloud"]:  # there it is a stranger now
                with pytest.raises(TimeoutError):
                    far.recv(100)


@pytest.fixture
def tools(hosts: Hosts) -> Tools:
    return Tools(lambda name: hosts.nodes[name].prefix, hosts.address)


@netns
@needs_tools
class TestByProgramsThatKnowNothingOfUs:
    """As in tests/e2e/test_measured.py, whose tolerances these are, but between hosts.

    What the hubs and the trunk themselves take, without a shaped link, comes on top: it is this machine's.
    """

    def test_round_trip(self, hosts: Hosts, tools: Tools) -> None:
        asked = 0.1

        def both(profile: LinkProfile) -> None:
            for ends in (("device-1", "cloud"), ("cloud", "device-1")):
                hosts.change(*ends, profile)

        def median() -> float:
            return statistics.median(tools.ping("device-1", "cloud", 20, 0.02))

        both(LinkProfile())
        bare = median()
        assert bare < BUSY
        both(LinkProfile(latency=asked))
        trip = 2 * asked
        settled(median, trip, trip + bare + max(0.001, 0.02 * trip))

    def test_rate(self, hosts: Hosts, tools: Tools) -> None:
        asked = 50e6
        hosts.change("device-1", "cloud", LinkProfile(rate=asked))
        hosts.change("cloud", "device-1", LinkProfile())

        def rate() -> float:
            found = tools.iperf("device-1", "cloud", "--time", "2", "--omit", "1")["sum_received"]
            return float(found["bits_per_second"]) / PAYLOAD

        settled(rate, 0.97 * asked, 1.03 * asked)

    def test_loss(self, hosts: Hosts, tools: Tools) -> None:
        """On one way, so that an echo crosses it once."""
        hosts.change("device-1", "cloud", LinkProfile(loss=0.01))
        hosts.change("cloud", "device-1", LinkProfile())
        count = 2000
        low, high = binomial_range(count, 0.01, 0.999)
        settled(lambda: count - len(tools.ping("device-1", "cloud", count, 0.002)), low, high)


@netns
class TestSuperPackets:
    def test_they_cross_the_trunk(self, hosts: Hosts) -> None:
        for ends in (("device-1", "cloud"), ("cloud", "device-1")):
            hosts.change(*ends, LinkProfile())
        data = os.urandom(8_000_000)
        before = hosts.do(hosts.fabric("cloud").counters())
        assert transfer(hosts, "device-1", "cloud", data) == data
        after = hosts.do(hosts.fabric("cloud").counters())
        packets = len(data) / (MTU - 52)
        assert after.from_trunk - before.from_trunk >= packets
        assert after.forwarded - before.forwarded < packets  # several segments at once
        # The floor holds on a busy machine.
        measured = settled(lambda: goodput(hosts, "device-1", "cloud", 1.0, 0.2), 0.3e9, float("inf"))
        print(f"unshaped {measured / 1e6:.0f} Mbit/s")
