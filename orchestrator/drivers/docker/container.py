"""What a node's container is made like. Pure: from the plan to the arguments of the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.types import LogConfig

from node.assignment import PLACE
from orchestrator.drivers.docker.files import Given
from orchestrator.drivers.user import User
from orchestrator.host.cgroups import CAN_SWAP
from orchestrator.host.docker_socket import DIRECTORY, NODE, RUN
from orchestrator.host.processes import labels
from orchestrator.planning.plan import HardwareClass, NodePlan

COMMAND = [str(PLACE / "assignment.json")]
PROCESSES = 256  # and threads; a node has about ten
SCRATCH = "rw,nosuid,nodev,size=256m,mode=1777"
_PERIOD = 100_000  # microseconds; CFS bandwidth control's default period

ENVIRONMENT = {"HOME": "/tmp", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Nodes share the host's cores, and can write to /tmp only."""


@dataclass(frozen=True)
class Limits:
    """Which limits this Engine can hold; what it cannot is said by ``notes``, in words for the record."""

    cpu: bool = True
    memory: bool = True
    swap: bool = True
    processes: bool = True

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Limits:
        """From what the Engine says of itself (`docker info`)."""
        return cls(
            cpu=bool(facts.get("CpuCfsQuota")),
            memory=bool(facts.get("MemoryLimit")),
            swap=bool(facts.get("SwapLimit")),
            processes=bool(facts.get("PidsLimit")),
        )

    def notes(self) -> list[str]:
        """One sentence for each limit that is not held."""
        found = []
        if missing := [name for name in ("cpu", "memory") if not getattr(self, name)]:
            found.append(
                f"{' and '.join(missing)} limits of the hardware are not enforced: the Docker Engine's host lacks the"
                " cgroup controllers; computing is still stretched to the hardware's speed"
            )
        if self.memory and not self.swap:
            found.append(CAN_SWAP)
        if not self.processes:
            found.append("the number of a node's processes is not limited: the Docker Engine's host cannot")
        return found

    def of_hardware(self, hardware: HardwareClass) -> dict[str, Any]:
        """The arguments that give a container its hardware's cores and memory and no more."""
        options: dict[str, Any] = {"pids_limit": PROCESSES} if self.processes else {}
        if self.cpu and hardware.cores is not None:
            options |= {"cpu_period": _PERIOD, "cpu_quota": round(hardware.cores * _PERIOD)}
        if self.memory and hardware.memory is not None:
            options["mem_limit"] = hardware.memory
            if self.swap:
                options["memswap_limit"] = hardware.memory  # of memory and swap together: none is left for swap
        return options


def options(
    node: NodePlan, run: str, directory: Path, incarnation: int, user: User, given: Given, limits: Limits
) -> dict[str, Any]:
    """The arguments of `docker.models.containers.ContainerCollection.create`."""
    return {
        "name": f"{run}-{node.name}-{incarnation}",
        "hostname": node.name,
        "labels": {RUN: run, NODE: node.name, DIRECTORY: str(directory)},
        # The processes carry the run's label too: should the Engine die, `down` finds them without it.
        "environment": ENVIRONMENT | labels(run, directory, "node"),
        "user": f"{user.uid}:{user.gid}",
        "network_mode": "none",  # the fabric attaches data0
        "mounts": given.mounts(),
        "read_only": True,
        "tmpfs": {"/tmp": SCRATCH},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "ipc_mode": "private",
        "auto_remove": True,  # so that nothing stays, also after the orchestrator's end
        "log_config": LogConfig(type=LogConfig.types.NONE),  # the driver itself takes what the node prints
        "healthcheck": {"test": ["NONE"]},  # the control plane's beats tell more, and cost less
        **limits.of_hardware(node.hardware),
    }
