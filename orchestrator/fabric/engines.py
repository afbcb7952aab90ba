"""Link engines: `kernel` (netem in the hub) and `userspace` (one switch process). ``open_fabric`` chooses."""

from __future__ import annotations

import json

from orchestrator.errors import HostError
from orchestrator.fabric.base import Fabric
from orchestrator.fabric.hub import Hub
from orchestrator.fabric.kernel import KernelFabric
from orchestrator.fabric.userspace import UserspaceFabric
from orchestrator.host import python
from orchestrator.host.directory import RunDirectory
from orchestrator.planning.plan import Plan


async def open_fabric(plan: Plan, hub: Hub, directory: RunDirectory) -> Fabric:
    """The engine the plan names; for `auto` the kernel's where netem was tried out and works, else userspace."""
    if plan.engine == "userspace":
        return await UserspaceFabric.open(hub, directory.run, directory.path, plan)
    tried = json.loads(await hub.run(python.module("orchestrator.fabric.probe_kernel")))
    if tried["netem"]:
        known = {key: tried[key] for key in ("seed", "duplicate_in_tree")}
        return await KernelFabric.open(hub, directory.run, directory.path, plan, **known)
    if plan.engine == "kernel":
        raise HostError(
            f"the kernel engine does not work on this host: {tried['reason']}; load the module sch_netem"
            " (`modprobe sch_netem`), or choose `engine: userspace`"
        )
    return await UserspaceFabric.open(hub, directory.run, directory.path, plan)
