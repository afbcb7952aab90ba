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
from orchestrator.drivers.hosts.network.prober import HostsProber
from orchestrator.drivers.hosts.network.underlay import HostEnd, HostsUnderlay, measure_all, refuse_short
from orchestrator.drivers.hosts.programs import HostsProgramsDriver
from orchestrator.drivers.local import with_control
from orchestrator.drivers.surroundings import addresses
from orchestrator.errors import HostError
from orchestrator.fabric.namespaces.wiring import MTU, wires_of
from orchestrator.fabric.trunk import PORT, Trunk, id_of, mtu_of
from orchestrator.fabric.underlay import crossed
from orchestrator.host.kernel.routes import way_to
from orchestrator.planning.hosts.inventory import HostFacts
from orchestrator.planning.keys import keypair
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory

LAST_PORT = 65535


Start = Callable[[Sequence[HostFacts], Settings, AsyncExitStack], Awaitable[Coroutine[Any, Any, str]]]
"""Starts an agent on each host for one run, whose end the stack brings. Returns what waits until agents have ended or
cannot start, and says so."""


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
    ``patience``: s until all agents are there; ``remedy``: what to check if one is not. ``here``: the name of this
    host. ``pods``: an agent has another address than its host, and starts again by itself when it has ended."""
    server = keypair()
    keys = keypair()
    driver, agents = open_agents(plan, directory, stack, server, keys.public)
    used = [each for each in plan.hosts if each.name in driver.hosts]
    address, _ = way_to(used[0].address)  # by which a host reaches this one: by which this one reaches it
    endpoint = f"tcp://{address}:{agents.listen(address)}"
    settings = Settings(run=directory.run, address=endpoint, server=server.public, keys=keys, lease=LEASE)
    end = asyncio.ensure_future(await start(used, settings, stack))
    stack.callback(end.cancel)
    await wait_for(agents, driver.hosts, end, patience, remedy)
    driver.here = here in driver.hosts
    stack.push_async_callback(driver.close)
    if pods:
        end.cancel()
        hosts = [replace(each, address=agents.hello(each.name)["address"]) for each in used]
        plan = replace(plan, hosts=tuple(hosts))
    else:
        stack.callback(asyncio.create_task(driver.watch(end)).cancel)
    # Linux gives no socket such a port by chance. Runs may share a host, so each has its own.
    port = PORT + secrets.randbelow(LAST_PORT - PORT) + 1
    key = secrets.token_hex(32)
    return await connected(driver, agents, plan, directory, stack, port, key)


def open_agents(
    plan: Plan,
    directory: RunDirectory,
    stack: AsyncExitStack,
    server: Keypair,
    keys: str,
) -> tuple[HostsDriver, Agents]:
    """The driver of a run, and the channel to its agents. ``keys``: the public key of the agents."""
    driver = (HostsProgramsDriver if plan.programs else HostsDriver)(plan, directory)
    stack.push_async_callback(driver.flush)  # the agents may log until they are closed
    agents = Agents(server, keys, LEASE, driver.hear, driver.lose, driver.find)
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
    """Wait until the agents of these hosts are there. ``end``: that of the agents. HostError if one does not start."""
    there = asyncio.ensure_future(agents.wait_for(hosts, patience))
    try:
        await asyncio.wait((there, end), return_when=asyncio.FIRST_COMPLETED)
        if there.done() and not (away := there.result()):
            return
        what = end.result() if end.done() else f"no agent started within {patience:.0f} s on {', '.join(away)}"
    finally:
        there.cancel()
    raise HostError(what, remedy)


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
    hellos = {host: agents.hello(host) for host in driver.hosts}
    mtus = {host: int(hello["mtu"]) for host, hello in hellos.items()}
    if len(mtus) > 1:
        mtu = mtu_of(min(mtus.values()), key=bool(key))
    else:
        mtu = MTU
    mtu = min(MTU, mtu) if key else mtu
    await driver.open_links(lambda host: setup_of(plan, driver.homes, directory.run, host, mtu, port, key))
    prober = HostsProber(agents, mtu)
    known = {host.name: host.address for host in plan.hosts}
    ends = [HostEnd(host, known[host], int(hello["pid"]), mtus[host]) for host, hello in hellos.items()]
    driver.between = await measure_all(ends, prober)
    refuse_short(plan, driver.between)
    fabric = HostsFabric(agents, plan, driver)
    driver.on_reopen = fabric.reshape
    driver.on_move = fabric.redirect
    network = None
    if crossed(plan.links, driver.homes):
        network = HostsUnderlay(plan, agents, driver, fabric)
    return await with_control(driver, fabric, prober, plan, directory, stack, network)


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
        (address,) = [each.address for each in plan.hosts if each.name == host]
        trunk = Trunk(address, id_of(run), remotes(plan, homes, host), mtu, port, key)
    return HostSetup(
        image=node_image.image_name(),
        images=sorted(plan.images_of(plan.nodes_on(host))),
        accelerated=plan.accelerated(host),
        programs=plan.programs or None,
        names=addresses(plan),
        wires=wires_of(plan),
        trunk=trunk,
    )
