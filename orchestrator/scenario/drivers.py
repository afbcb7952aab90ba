"""The drivers that a scenario may name, and their capabilities: plain data, without heavy imports.

A new driver is one folder under `orchestrator.drivers` and one entry here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal


@dataclass(frozen=True)
class DriverKind:
    """A driver: its module, which is an `orchestrator.drivers.base.DriverEntry`, and its capabilities.

    simulated: nodes are coroutines on a virtual clock, links and computing are modelled, worker processes train.
    images: nodes are containers, each created from an image.
    """

    name: str
    module: str
    simulated: bool = False
    images: bool = False


DRIVERS: dict[str, DriverKind] = {
    kind.name: kind
    for kind in (
        DriverKind("namespaces", "orchestrator.drivers.namespaces.entry"),
        DriverKind("docker", "orchestrator.drivers.docker.entry", images=True),
        DriverKind("sim", "orchestrator.drivers.sim.entry", simulated=True),
    )
}

if TYPE_CHECKING:
    DriverName = str
else:
    DriverName = Literal[tuple(DRIVERS)]


def kind_of(driver: str) -> DriverKind:
    """The driver of this name. A name from a damaged record, or from another version, stands for a driver that can do
    nothing."""
    return DRIVERS.get(driver, DriverKind(driver, module=""))


def listed(*, simulated: bool = False, images: bool = False) -> str:
    """The names of the drivers with these capabilities, for messages."""
    return " or ".join(k.name for k in DRIVERS.values() if k.simulated >= simulated and k.images >= images)
