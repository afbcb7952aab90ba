"""The drivers that a scenario may name: plain data, without heavy imports.

A new driver is one folder under `orchestrator.drivers` and one entry here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True)
class DriverKind:
    """A driver: its module, which is an `orchestrator.drivers.base.DriverEntry`, and its capabilities.

    simulated: nodes are coroutines on a virtual clock, links and computing are modelled, worker processes train.
    virtual: nodes are processes of a guest kernel in virtual time; computing is modelled.
    images: nodes are containers, each created from an image.
    programs: nodes can run programs instead of an algorithm.
    several_hosts: nodes run on the hosts of an inventory, not only on this one.
    node_bytes: memory of this host that each node of an algorithm needs at least, models not counted; 0 if not known.
    shapes_links: links have their settings; otherwise all are the network that the nodes are on (``real`` in plans).
    summary: what nodes are, for the reference of scenarios.
    scheduler: the module with the ``SCHEDULER`` of sweeps, see `orchestrator.drivers.scheduler`; "" without one.
    hosting: the module of the commands `edgebed hosts`, see `orchestrator.drivers.base.Hosting`; "" without.
    """

    name: str
    module: str
    simulated: bool = False
    virtual: bool = False
    images: bool = False
    programs: bool = False
    several_hosts: bool = False
    node_bytes: int = 0
    shapes_links: bool = True
    summary: str = ""
    scheduler: str = ""
    hosting: str = ""


_KINDS = (
    DriverKind(
        "namespaces",
        "orchestrator.drivers.namespaces.entry",
        programs=True,
        node_bytes=8_000_000,
        summary="processes on this host",
    ),
    DriverKind(
        "docker",
        "orchestrator.drivers.docker.entry",
        images=True,
        programs=True,
        summary="containers on this host",
    ),
    DriverKind(
        "swarm",
        "orchestrator.drivers.swarm.entry",
        images=True,
        programs=True,
        several_hosts=True,
        summary="containers on the hosts of a swarm",
        scheduler="orchestrator.drivers.swarm.scheduler",
        hosting="orchestrator.drivers.swarm.hosting",
    ),
    DriverKind(
        "slurm",
        "orchestrator.drivers.slurm.entry",
        several_hosts=True,
        summary="processes on the hosts of a job",
        scheduler="orchestrator.drivers.slurm.scheduler",
    ),
    DriverKind(
        "kubernetes",
        "orchestrator.drivers.kubernetes.entry",
        several_hosts=True,
        summary="processes on the nodes of a cluster",
        scheduler="orchestrator.drivers.kubernetes.scheduler",
    ),
    DriverKind(
        "virtual",
        "orchestrator.drivers.virtual.entry",
        virtual=True,
        programs=True,
        summary="processes of a guest kernel in virtual time",
    ),
    DriverKind(
        "sim",
        "orchestrator.drivers.sim.entry",
        simulated=True,
        summary="simulated nodes and links on a virtual clock",
    ),
)
DRIVERS: Mapping[str, DriverKind] = MappingProxyType({kind.name: kind for kind in _KINDS})
"""The drivers of edgebed."""


def kind_of(driver: str) -> DriverKind:
    """The driver of this name; an unknown one, as of a damaged record, can do nothing."""
    return DRIVERS.get(driver, DriverKind(driver, module=""))


LinkKind = Literal["emulated", "modelled", "real"]
"""What a figure of a link is: emulated links carry packets and are shaped as asked, modelled ones are computed, real
ones are the network between hosts, which has no settings."""


def link_kind(driver: str, *, real: bool) -> LinkKind:
    """The kind of a link under a driver."""
    if real:
        return "real"
    if kind_of(driver).simulated:
        return "modelled"
    return "emulated"
