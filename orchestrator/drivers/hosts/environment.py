"""The environment of a run on several hosts."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from node.assignment import Keypair
from orchestrator.drivers.base import Environment
from orchestrator.drivers.docker import node_image
from orchestrator.drivers.hosts.agents.calls import HostSetup
from orchestrator.drivers.hosts.agents.listener import Agents
from orchestrator.drivers.hosts.agents.settings import LEASE, Settings
from orchestrator.drivers.hosts.driver import HostsDriver
from orchestrator.drivers.hosts.network.fabric import HostsFabric, remotes
from orchestrator.drivers.hosts.network.link_prober import HostsProber
from orchestrator.drivers.hosts.network.underlay import HostEnd, HostsUnderlay, measure_all, refuse_short
from orchestrator.drivers.hosts.programs import HostsProgramsDriver
from orchestrator.drivers.local import with_control
from orchestrator.drivers.surroundings import addresses
from orchestrator.errors import HostError
from orchestrator.fabric.hosts_network import crossed
from orchestrator.fabric.namespaces.wiring import MTU, wires_of
from orchestrator.fabric.trunk import PORT, Trunk, id_of, mtu_of
from orchestrator.host.kernel.routes import way_to
from orchestrator.planning.hosts.inventory import HostFacts
from orchestrator.planning.keys import keypair
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory

LAST_PORT = 65535


Ending = Coroutine[Any, Any, str]
Start = Callable[[Sequence[HostFacts], Settings, AsyncExitStack], Awaitable[Ending]]
"""Starts an agent on each host for one run. The stack ends them. The coroutine that it returns waits until agents have
ended or cannot start, and returns the reason."""


async def with_agents(
    plan: Plan,
    directory: RunDirectory,
    stack: AsyncExitStack,
    start: Start,
    *,
    patience: float,
    remedy: str,
    here: str | None = None,
    pods: bool = False,
) -> Environment:
    """Start agents on the hosts of the plan, and open each host. The trunk has a key, since an ordinary user makes it.
    ``patience``: s until all agents are connected; ``remedy``: what to check if one is not. ``here``: the name of this
    host. ``pods``: an agent has another address than its host, and starts again by itself when it has ended."""
    server = keypair()
    keys = keypair()
    driver, agents = open_agents(plan, directory, stack, server, keys.public)
    used = [host for host in plan.hosts if host.name in driver.hosts]
    # A host reaches this one by the address by which this one reaches it.
    first = used[0]
    address, _ = way_to(first.address)
    port = agents.listen(address)
    settings = Settings(
        run=directory.run,
        address=f"tcp://{address}:{port}",
        server=server.public,
        keys=keys,
        lease=LEASE,
    )
    waiting = await start(used, settings, stack)
    end = asyncio.ensure_future(waiting)
    stack.callback(end.cancel)
    await wait_for(agents, driver.hosts, end, patience, remedy)
    driver.here = here in driver.hosts
    stack.push_async_callback(driver.close)
    if pods:
        end.cancel()
        hosts = []
        for host in used:
            hello = agents.hello(host.name)
            hosts.append(replace(host, address=hello["address"]))
        plan = replace(plan, hosts=tuple(hosts))
    else:
        watching = asyncio.create_task(driver.watch(end))
        stack.callback(watching.cancel)
    # Linux gives no socket such a port by chance. Runs may share a host, so each has its own.
    trunk_port = PORT + secrets.randbelow(LAST_PORT - PORT) + 1
    key = secrets.token_hex(32)
    return await connected(
        driver,
        agents,
        plan,
        directory,
        stack,
        trunk_port,
        key,
    )


def open_agents(
    plan: Plan,
    directory: RunDirectory,
    stack: AsyncExitStack,
    server: Keypair,
    keys: str,
) -> tuple[HostsDriver, Agents]:
    """The driver of a run, and the channel to its agents. ``keys``: the public key of the agents."""
    driver: HostsDriver
    if plan.programs:
        driver = HostsProgramsDriver(plan, directory)
    else:
        driver = HostsDriver(plan, directory)
    stack.push_async_callback(driver.flush)  # the agents may log until they are closed
    agents = Agents(
        server,
        keys,
        LEASE,
        driver.hear,
        driver.lose,
        driver.find,
    )
    stack.push_async_callback(agents.close)
    driver.use(agents)
    return driver, agents


async def wait_for(
    agents: Agents,
    hosts: Sequence[str],
    end: asyncio.Future[str],
    patience: float,
    remedy: str,
) -> None:
    """Wait for the agents of these hosts. ``end``: that of the agents. HostError if one does not start."""
    waiting = agents.wait_for(hosts, patience)
    arrival = asyncio.ensure_future(waiting)
    away: list[str] = []
    try:
        await asyncio.wait((arrival, end), return_when=asyncio.FIRST_COMPLETED)
        if arrival.done():
            away = arrival.result()
            if not away:
                return
        if end.done():
            reason = end.result()
        else:
            reason = f"no agent started within {patience:.0f} s on {', '.join(away)}"
    finally:
        arrival.cancel()
    raise HostError(reason, remedy)


async def connected(
    driver: HostsDriver,
    agents: Agents,
    plan: Plan,
    directory: RunDirectory,
    stack: AsyncExitStack,
    port: int = PORT,
    key: str = "",
) -> Environment:
    """Open each host. ``port`` and ``key``: of the trunk."""
    await driver.open()
    hellos = {}
    mtus = {}
    for host in driver.hosts:
        hello = agents.hello(host)
        hellos[host] = hello
        mtus[host] = int(hello["mtu"])
    mtu = MTU
    if len(mtus) > 1:
        smallest = min(mtus.values())
        mtu = mtu_of(smallest, key=bool(key))
    if key:
        mtu = min(MTU, mtu)

    def setup(host: str) -> HostSetup:
        return setup_of(
            plan,
            driver.homes,
            directory.run,
            host,
            mtu,
            port,
            key,
        )

    await driver.open_links(setup)
    prober = HostsProber(agents, mtu)
    addresses_of_hosts = {host.name: host.address for host in plan.hosts}
    ends = []
    for host, hello in hellos.items():
        pid = int(hello["pid"])
        end = HostEnd(host, addresses_of_hosts[host], pid, mtus[host])
        ends.append(end)
    driver.between = await measure_all(ends, prober)
    refuse_short(plan, driver.between)
    fabric = HostsFabric(agents, plan, driver)
    driver.on_reopen = fabric.reshape
    driver.on_move = fabric.redirect
    network = None
    if crossed(plan.links, driver.homes):
        network = HostsUnderlay(plan, agents, driver, fabric)
    return await with_control(
        driver,
        fabric,
        prober,
        plan,
        directory,
        stack,
        network,
    )


def setup_of(
    plan: Plan,
    homes: Mapping[str, str],
    run: str,
    host: str,
    mtu: int,
    port: int = PORT,
    key: str = "",
) -> HostSetup:
    """What a host needs to open its driver, hub and links. ``homes``: the present host of each node. ``mtu``: the
    largest packet of a node. There is no trunk if the plan has one host."""
    trunk = None
    if len(plan.hosts) > 1:
        addresses_of_hosts = {planned.name: planned.address for planned in plan.hosts}
        address = addresses_of_hosts[host]
        others = remotes(plan, homes, host)
        number = id_of(run)
        trunk = Trunk(address, number, others, mtu, port, key)
    nodes = plan.nodes_on(host)
    return HostSetup(
        image=node_image.image_name(),
        images=sorted(plan.images_of(nodes)),
        accelerated=plan.accelerated(host),
        programs=plan.programs or None,
        names=addresses(plan),
        wires=wires_of(plan),
        trunk=trunk,
    )
