"""The userspace engine's wiring with real namespaces, a real switch and real packets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from orchestrator.errors import HostError
from orchestrator.fabric.base import NodeHandle
from orchestrator.fabric.engines import open_fabric
from orchestrator.fabric.namespaces import tcp
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.namespaces.wiring import ipv6_address, wires_of
from orchestrator.fabric.userspace import UserspaceFabric
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory
from orchestrator.scenario.reading import parse

pytestmark = pytest.mark.netns

SCENARIO = """\
name: wired
algorithm: {name: fedavg, rounds: 1}
topology: {edges: 0, devices: 2}
links: {device-cloud: {latency: 10ms}, device-1 <-> cloud: {mtu: 1400}}
engine: userspace
stack: {device-1: {congestion: reno, syn_retries: 3, keepalive: 30s, retries2: 8, rmem: 1mb, wmem: 2mb}}
"""

ACCEPT = """
import socket, sys
with socket.create_server((sys.argv[1], 10)) as server:
    print("here", flush=True)
    print(server.accept()[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(bytes(1)).decode())
"""

CONNECT = """
import socket, sys
with socket.create_connection((sys.argv[1], 10)) as client:
    print(client.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(bytes(1)).decode())
"""

BUSY = 0.035  # s; what a round trip of 20 ms may take on a busy machine: how exact links are is measured elsewhere

ECHO = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 9))
print("here", flush=True)
while True:
    data, peer = s.recvfrom(100)
    s.sendto(data, peer)
"""

ASK = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(float(sys.argv[2]))
for _ in range(int(sys.argv[3])):
    began = time.perf_counter()
    s.sendto(b"?", (sys.argv[1], 9))
    try:
        s.recv(100)
        print(time.perf_counter() - began)
    except TimeoutError:
        print("inf")
"""


@dataclass
class Stage:
    """Every node of the plan is a process that echoes datagrams, in a network namespace of its own."""

    plan: Plan
    hub: Hub
    fabric: UserspaceFabric
    pids: dict[str, int]
    stacks: dict[str, dict[str, str]]

    async def round_trips(self, source: str, target: str, count: int = 15, timeout: float = 1.0) -> list[float]:
        argv = [sys.executable, "-I", "-S", "-c", ASK, self.plan.node(target).address, str(timeout), str(count)]
        return [float(line) for line in (await self.hub.run(argv, pid=self.pids[source])).split()]

    async def start_node(self, name: str, stack: contextlib.AsyncExitStack) -> None:
        program = "import sys; print('new', flush=True); sys.stdin.read(1);" + ECHO
        echoing = [sys.executable, "-I", "-S", "-c", program, self.plan.node(name).address]
        process = await asyncio.create_subprocess_exec(
            *self.hub.enter(),
            *("unshare", "--net", "--"),
            *echoing,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None

        async def end() -> None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

        stack.push_async_callback(end)
        assert await process.stdout.readline() == b"new\n"
        self.pids[name] = process.pid
        self.stacks[name] = await self.fabric.attach(self.plan.node(name), NodeHandle(process.pid))
        process.stdin.write(b"\n")
        assert await process.stdout.readline() == b"here\n"


@pytest.fixture
async def stack() -> AsyncIterator[contextlib.AsyncExitStack]:
    async with contextlib.AsyncExitStack() as opened:
        yield opened


@pytest.fixture
async def stage(tmp_path: Path, stack: contextlib.AsyncExitStack) -> Stage:
    directory = RunDirectory(tmp_path)
    directory.furnish()
    plan = make_plan(parse(SCENARIO, "wired.yaml"), None)
    try:
        hub = await Hub.open(f"test-{os.getpid()}", tmp_path)
    except HostError as error:
        if "CI" in os.environ:
            raise
        pytest.skip(str(error))
    stack.push_async_callback(hub.close)
    fabric = await open_fabric(wires_of(plan), hub, directory)
    assert isinstance(fabric, UserspaceFabric)
    stack.push_async_callback(fabric.close)
    await fabric.shape(plan.links)
    made = Stage(plan, hub, fabric, {}, {})
    for node in plan.nodes:
        await made.start_node(node.name, stack)
    return made


async def congestion_controls(stage: Stage, node: str) -> tuple[str, bytes]:
    """Those of both ends of a connection from a node to the cloud."""
    python = (sys.executable, "-I", "-S", "-c")
    address = stage.plan.node("cloud").address
    server = await stage.hub.spawn([*python, ACCEPT, address], pid=stage.pids["cloud"])
    assert server.stdout is not None
    assert await server.stdout.readline() == b"here\n"
    connected = await stage.hub.run([*python, CONNECT, address], pid=stage.pids[node])
    accepted, _ = await server.communicate()
    return connected, accepted


async def test_a_link_has_its_latency_and_others_do_not_exist(stage: Stage) -> None:
    assert 0.020 <= statistics.median(await stage.round_trips("device-0", "cloud")) < BUSY
    assert await stage.round_trips("device-0", "device-1", count=2, timeout=0.1) == [float("inf")] * 2


async def test_a_node_is_reached_at_its_new_address_and_no_more_at_the_former(
    stage: Stage, stack: contextlib.AsyncExitStack
) -> None:
    node = replace(stage.plan.node("cloud"), address="10.77.255.254")
    peers = {name: NodeHandle(stage.pids[name]) for name in ("device-0", "device-1")}
    await stage.fabric.readdress(node, NodeHandle(stage.pids["cloud"]), peers)
    assert await stage.round_trips("device-0", "cloud", count=2, timeout=0.2) == [float("inf")] * 2
    stage.plan = replace(stage.plan, nodes=tuple(node if each.name == "cloud" else each for each in stage.plan.nodes))
    echo = [sys.executable, "-I", "-S", "-c", ECHO, node.address]
    server = await stage.hub.spawn(echo, pid=stage.pids["cloud"])
    assert server.stdout is not None
    assert await server.stdout.readline() == b"here\n"
    try:
        for device in peers:
            assert 0.020 <= statistics.median(await stage.round_trips(device, "cloud")) < BUSY
        await stage.start_node("device-1", stack)  # one that starts again knows the new address, too
        assert 0.020 <= statistics.median(await stage.round_trips("device-1", "cloud")) < BUSY
    finally:
        server.kill()
        await server.wait()


async def paths(stage: Stage, node: str, peer: str) -> list[str]:
    """A node's routes to a peer alone: of IPv4, and of IPv6."""
    address = stage.plan.node(peer).address
    found = []
    for family, each in (("-4", address), ("-6", ipv6_address(address))):
        shown = await stage.hub.run(["ip", family, "route", "show", "exact", each], pid=stage.pids[node])
        found.append(shown.split("mtu ")[-1].split(" pref")[0].strip())
    return found


async def test_a_link_keeps_its_mtu_after_new_addresses_at_either_end(stage: Stage) -> None:
    """device-1 has Reno, by its stack."""
    assert await paths(stage, "cloud", "device-0") == await paths(stage, "device-0", "cloud") == ["", ""]
    for name, address in (("", ""), ("cloud", "10.77.255.254"), ("device-1", "10.77.255.253")):
        if name:
            moved = replace(stage.plan.node(name), address=address)
            peers = {"device-1" if name == "cloud" else "cloud"}
            handles = {each: NodeHandle(stage.pids[each]) for each in peers}
            await stage.fabric.readdress(moved, NodeHandle(stage.pids[name]), handles)
            nodes = tuple(moved if each.name == name else each for each in stage.plan.nodes)
            stage.plan = replace(stage.plan, nodes=nodes)
        assert await paths(stage, "cloud", "device-1") == ["1400 congctl cubic"] * 2
        assert await paths(stage, "device-1", "cloud") == ["1400 congctl reno"] * 2


async def test_tcp_of_nodes_does_not_depend_on_the_host(stage: Stage) -> None:
    """Each namespace is given Reno, as by a host that prefers it: the links' routes still have Linux's default."""
    for pid in stage.pids.values():
        await stage.hub.run(["tee", "/proc/sys/net/ipv4/tcp_congestion_control"], pid=pid, stdin="reno")
    assert await congestion_controls(stage, "device-0") == ("cubic\n", b"cubic\n")
    for name, value in tcp.BUFFERS.items():
        found = await stage.hub.run(["cat", f"/proc/sys/net/ipv4/{name}"], pid=stage.pids["cloud"])
        assert found.split() == value.split()
    assert stage.fabric.tcp.items() >= tcp.SETTINGS.items()


async def test_a_node_has_the_tcp_settings_of_its_stack_and_they_are_read_back(stage: Stage) -> None:
    wanted = dict(stage.plan.node("device-1").stack)
    assert stage.stacks == {"cloud": {}, "device-0": {}, "device-1": wanted}
    for name, value in wanted.items():
        if name != tcp.CONGESTION:
            found = await stage.hub.run(["cat", f"/proc/sys/net/ipv4/{name}"], pid=stage.pids["device-1"])
            assert found.split() == value.split(), name
    assert await congestion_controls(stage, "device-1") == ("reno\n", b"cubic\n")  # each end has its own


async def test_a_congestion_control_that_the_kernel_lacks_leaves_the_usual_one(
    stage: Stage, stack: contextlib.AsyncExitStack
) -> None:
    lacking = {tcp.CONGESTION: "no-such-control", "tcp_retries2": "300"}
    node = replace(stage.plan.node("device-0"), stack=lacking)
    stage.plan = replace(stage.plan, nodes=tuple(node if each.name == node.name else each for each in stage.plan.nodes))
    await stage.start_node("device-0", stack)
    assert stage.stacks["device-0"] == {tcp.CONGESTION: "cubic", "tcp_retries2": "15"}
