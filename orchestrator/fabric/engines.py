"""Link engines: `kernel` (netem in the hub) and `userspace` (one switch process). ``open_fabric`` chooses."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable

from orchestrator.errors import EngineError
from orchestrator.fabric.base import Fabric
from orchestrator.fabric.hub import Hub
from orchestrator.fabric.kernel import KernelFabric
from orchestrator.fabric.userspace import UserspaceFabric
from orchestrator.host import python
from orchestrator.host.directory import RunDirectory
from orchestrator.planning.plan import Plan
from orchestrator.scenario.engines import ENGINES


async def open_fabric(plan: Plan, hub: Hub, directory: RunDirectory) -> Fabric:
    """Open the first of the plan's allowed engines that works on this host. HostError if none does."""
    *preferred, last = ENGINES[plan.engine]
    for name in preferred:
        with contextlib.suppress(EngineError):
            return await OPENING[name](plan, hub, directory)
    return await OPENING[last](plan, hub, directory)


async def _open_kernel(plan: Plan, hub: Hub, directory: RunDirectory) -> Fabric:
    """Open the kernel engine after a test of netem. EngineError if netem does not work."""
    tried = json.loads(await hub.run(python.module("orchestrator.fabric.probe_kernel")))
    if not tried["netem"]:
        raise EngineError(
            f"the kernel engine does not work on this host: {tried['reason']}; load the module sch_netem"
            " (`modprobe sch_netem`), or choose `engine: userspace`"
        )
    known = {key: tried[key] for key in ("seed", "duplicate_in_tree")}
    return await KernelFabric.open(hub, directory.run, directory.path, plan, **known)


async def _open_userspace(plan: Plan, hub: Hub, directory: RunDirectory) -> Fabric:
    return await UserspaceFabric.open(hub, directory.run, directory.path, plan)


OPENING: dict[str, Callable[[Plan, Hub, RunDirectory], Awaitable[Fabric]]] = {
    "kernel": _open_kernel,
    "userspace": _open_userspace,
}
