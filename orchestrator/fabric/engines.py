"""Link engines: `kernel` (netem in the hub) and `userspace` (one switch process). ``open_fabric`` chooses."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from orchestrator.errors import EngineError
from orchestrator.fabric.base import Fabric
from orchestrator.fabric.namespaces import tcp
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.namespaces.wiring import Wires
from orchestrator.fabric.tc.kernel import KernelFabric
from orchestrator.fabric.tc.kernel_media import KernelMedia
from orchestrator.fabric.tc.netem_trial import netem_here
from orchestrator.fabric.trunk import Trunk
from orchestrator.fabric.userspace import UserspaceFabric
from orchestrator.record.directory import RunDirectory
from orchestrator.scenario.sections.engines import candidate_engines


async def open_fabric(
    wires: Wires,
    hub: Hub,
    directory: RunDirectory,
    trunk: Trunk | None = None,
) -> Fabric:
    """Open the first of the allowed engines that works on this host. HostError if none does. ``trunk``: the hub's
    trunk, already laid, if the run spans several hosts. Their engines may differ."""
    allowed = candidate_engines(wires.engine, wires.beyond_kernel, media=wires.media)
    if not allowed:
        raise EngineError(
            f"the {wires.engine} engine cannot make these links: {wires.beyond_kernel}; choose `engine: userspace`"
        )
    settings = await tcp.in_force(hub)  # before an engine is open, which would have to be closed if this fails
    opening: dict[str, Callable[..., Awaitable[Fabric]]] = {
        "kernel": _open_kernel,
        "userspace": UserspaceFabric.open,
    }
    arguments = (hub, directory.run, directory.path, wires, trunk)
    fabric: Fabric | None = None
    for name in allowed[:-1]:
        with contextlib.suppress(EngineError):
            fabric = await opening[name](*arguments)
            break
    if fabric is None:
        last = allowed[-1]
        fabric = await opening[last](*arguments)
    fabric.tcp = settings
    return fabric


async def _open_kernel(
    hub: Hub,
    run: str,
    directory: Path,
    wires: Wires,
    trunk: Trunk | None,
) -> Fabric:
    """Open the kernel engine if netem works. EngineError if netem does not work."""
    netem = await netem_here(hub)
    if not netem.works:
        raise EngineError(
            f"the kernel engine does not work on this host: {netem.reason}; load the modules sch_netem"
            " and act_police (`modprobe -a sch_netem act_police`), or choose `engine: userspace`"
        )
    if wires.media:
        missing = await KernelMedia.missing(hub)
        if missing:
            raise EngineError(
                f"the kernel engine cannot share media on this host: {missing}; load the modules ifb, act_mirred and"
                " act_skbedit (`modprobe -a ifb act_mirred act_skbedit`), or choose `engine: userspace`"
            )
    return await KernelFabric.open(
        hub,
        run,
        directory,
        wires,
        trunk,
        seed=netem.seed,
        duplicate_in_tree=netem.duplicate_in_tree,
    )
