"""The environment of a run on several hosts, once their agents are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial

from orchestrator.drivers.base import Environment
from orchestrator.drivers.hosts.agents.calls import HostSetup
from orchestrator.drivers.hosts.agents.channel import Agents
from orchestrator.drivers.hosts.driver import HostsDriver
from orchestrator.drivers.hosts.network.fabric import HostsFabric, remotes
from orchestrator.drivers.hosts.network.prober import HostsProber
from orchestrator.drivers.hosts.network.underlay import HostEnd, HostsUnderlay, deduction, measure_all, refuse_short
from orchestrator.drivers.hosts.programs import HostsProgramsDriver
from orchestrator.drivers.local import open_control, open_programs
from orchestrator.drivers.programs import addresses
from orchestrator.fabric.namespaces.wiring import MTU, wires_of
from orchestrator.fabric.trunk import PORT, Trunk, id_of, mtu_of
from orchestrator.fabric.underlay import crossed
from orchestrator.host.directory import RunDirectory
from orchestrator.planning.plan import Plan


async def connected(
    driver: HostsDriver,
    agents: Agents,
    plan: Plan,
    directory: RunDirectory,
    stack: AsyncExitStack,
    setup: Callable[[Mapping[str, str], str, int], HostSetup],
    largest: Callable[[int], int] = mtu_of,
) -> Environment:
    """Open each host. ``setup``: of a host, from the present host of each node, and the largest packet of a node in
    bytes. ``largest``: that packet, from the smallest MTU of the hosts."""
    await driver.open()
    hellos = {host: agents.hello(host) for host in driver.hosts}
    mtus = {host: int(hello["mtu"]) for host, hello in hellos.items()}
    mtu = largest(min(mtus.values())) if len(mtus) > 1 else MTU
    await driver.open_links(lambda host: setup(driver.homes, host, mtu))
    prober = HostsProber(agents, mtu)
    known = {host.name: host.address for host in plan.hosts}
    ends = [HostEnd(host, known[host], int(hello["pid"]), mtus[host]) for host, hello in hellos.items()]
    between = driver.between = await measure_all(ends, prober)
    refuse_short(plan, between)
    fabric = HostsFabric(agents, plan, driver, partial(deduction, driver.homes, between))
    driver.on_reopen, driver.on_move = fabric.reshape, fabric.redirect
    network = None
    if crossed(plan.links, driver.homes):
        network = HostsUnderlay(
            plan, agents, driver.homes, between, fabric.frames.readings, fabric.strangers, driver.has
        )
    if isinstance(driver, HostsProgramsDriver):
        return Environment(driver, fabric, open_programs(plan, directory, driver, stack), prober, network=network)
    control, told = await open_control(plan, directory, stack)
    return Environment(driver, fabric, control, prober, told, network)


def setup_of(plan: Plan, trunk: Trunk | None) -> HostSetup:
    """What each host needs to open its hub and its links; and no images."""
    return HostSetup(
        image="",
        images=(),
        accelerated=(),
        programs=plan.programs or None,
        names=addresses(plan),
        wires=wires_of(plan),
        trunk=trunk,
    )


def trunk_of(
    plan: Plan, homes: Mapping[str, str], run: str, host: str, mtu: int, port: int = PORT, key: str = ""
) -> Trunk | None:
    """A host's end of the trunk; None if the plan has one host. ``homes``: the present host of each node."""
    if len(plan.hosts) == 1:
        return None
    (address,) = [each.address for each in plan.hosts if each.name == host]
    return Trunk(address, id_of(run), remotes(plan, homes, host), mtu, port, key)
