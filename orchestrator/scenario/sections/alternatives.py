"""The drivers that a message proposes instead of one that cannot do something."""

from __future__ import annotations

from orchestrator.scenario.sections.drivers import DRIVERS


def one_host(driver: str, what: str) -> str:
    """The message that a driver of one host has no use for ``what``."""
    others = listed(several_hosts=True)
    return f"the driver {driver} makes all nodes on this host: leave {what} out, or use the driver {others}"


def sizes_not_simulated(driver: str) -> str:
    """The message that a simulation, which computes transfers, has no packets that could be too large."""
    others = listed(programs=True)
    return f"the driver {driver} does not model the size of packets: leave drop_above out, or use the driver {others}"


def listed(
    *,
    simulated: bool = False,
    images: bool = False,
    programs: bool = False,
    several_hosts: bool = False,
) -> str:
    """The names of the drivers with these capabilities, for messages; empty if there is none."""
    names = []
    for kind in DRIVERS.values():
        lacks = (
            simulated and not kind.simulated,
            images and not kind.images,
            programs and not kind.programs,
            several_hosts and not kind.several_hosts,
        )
        if not any(lacks):
            names.append(kind.name)
    return " or ".join(names)
