"""What the agent of a host reports of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.host.kernel.clock import Clock

ENGINE = (
    "ServerVersion",
    "OSType",
    "KernelVersion",
    "Architecture",
    "DockerRootDir",
    "CgroupVersion",
    "CgroupDriver",
    "MemoryLimit",
    "SwapLimit",
    "CpuCfsQuota",
    "PidsLimit",
    "SecurityOptions",
    "Warnings",
)
"""The keys of `docker info` that are reported, in addition to the names of the ``Runtimes``."""


@dataclass(frozen=True)
class KeptData:
    """A prepared data set that a host keeps: its name, the hash of its files, and its bytes."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True)
class HostState:
    """None stands for what could not be read.

    version             of edgebed, in the image of agents
    kernel              its release
    engine              what the Engine reports, the keys ENGINE and Runtimes of `docker info`
    image               the image of nodes, see `node_image.describe_image`; None if the Engine has no such image
    disk_free           bytes, where the Engine keeps images, containers and volumes
    trunk, netem        "" if it works, otherwise why not
    trunk_notes         what is to be known of a trunk that works
    iptable_raw         whether the kernel has this module
    model               of a board: "Raspberry Pi 4 Model B Rev 1.4"
    congestion_control  of TCP in the nodes' namespaces
    temperature         °C, the highest
    accelerators        names, see `orchestrator.host.kernel.accelerators`
    datasets            those that the host keeps
    throttled           what slows the processor down at this moment; None if nothing reports it
    """

    version: str
    kernel: str
    engine: Mapping[str, Any] | None = None
    image: Mapping[str, Any] | None = None
    disk_free: int | None = None
    trunk: str | None = None
    trunk_notes: tuple[str, ...] = ()
    netem: str | None = None
    iptable_raw: bool | None = None
    model: str | None = None
    clock: Clock | None = None
    congestion_control: str | None = None
    temperature: float | None = None
    accelerators: tuple[str, ...] = ()
    datasets: tuple[KeptData, ...] = ()
    throttled: tuple[str, ...] | None = None


def of_engine(info: Mapping[str, Any]) -> dict[str, Any]:
    """What is reported of `docker info`."""
    facts = {key: info.get(key) for key in ENGINE}
    runtimes = info.get("Runtimes") or ()
    facts["Runtimes"] = sorted(runtimes)
    return facts
