"""The SDK's arguments for a node's container, made from the plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.types import DeviceRequest, LogConfig, Mount

from node.assignment import PLACE
from orchestrator.drivers.user import User
from orchestrator.host.docker_socket import DIRECTORY, NODE, RUN
from orchestrator.host.kernel.cgroups import CAN_SWAP, UNLIMITED, has_controller
from orchestrator.host.process.processes import labels
from orchestrator.planning.plan import NodePlan
from orchestrator.scenario.sections.compute import PROCESSOR
from orchestrator.scenario.sections.hardware import HardwareClass

COMMAND = [str(PLACE / "assignment.json")]
PROCESSES = 256  # processes and threads; a node has about ten
SCRATCH = "rw,nosuid,nodev,size=256m,mode=1777"
NVIDIA = "nvidia"  # the name of its runtime
TRIAL = "trial"
_PERIOD = 100_000  # microseconds; CFS bandwidth control's default period

ENVIRONMENT = {"HOME": "/tmp", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Nodes share the host's cores, and can write only to /tmp."""


def is_podman(facts: Mapping[str, Any]) -> bool:
    """Whether what answers as a Docker Engine is Podman. ``facts``: `docker info`."""
    return "BuildahVersion" in facts


def product(facts: Mapping[str, Any]) -> str:
    """The version of an Engine, with its name if that is not Docker."""
    return f"{'Podman ' * is_podman(facts)}{facts['ServerVersion']}"


@dataclass(frozen=True)
class Limits:
    """The limits that this Engine can enforce. ``notes`` lists the others, in words for the record."""

    cpu: bool = True
    memory: bool = True
    swap: bool = True
    processes: bool = True

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Limits:
        """The limits according to the Engine's own facts (`docker info`)."""
        return cls(
            cpu=bool(facts.get("CpuCfsQuota")),
            memory=bool(facts.get("MemoryLimit")),
            swap=bool(facts.get("SwapLimit")),
            # Podman says so on hosts without the controller, too, where its containers then do not start.
            processes=bool(facts.get("PidsLimit")) and (not is_podman(facts) or has_controller("pids")),
        )

    def notes(self) -> list[str]:
        """One sentence for each limit that is not enforced."""
        found = []
        missing = [name for name in ("cpu", "memory") if not getattr(self, name)]
        if missing:
            why = "the Docker Engine's host lacks the cgroup controllers"
            found.append(UNLIMITED.format(" and ".join(missing), why))
        if self.memory and not self.swap:
            found.append(CAN_SWAP)
        if not self.processes:
            found.append("the number of a node's processes is not limited: the Docker Engine's host cannot")
        return found

    def of_hardware(self, hardware: HardwareClass) -> dict[str, Any]:
        """The arguments that limit a container to its hardware's cores and memory."""
        options: dict[str, Any] = {"pids_limit": PROCESSES} if self.processes else {}
        if self.cpu and hardware.cores is not None:
            options |= {"cpu_period": _PERIOD, "cpu_quota": round(hardware.cores * _PERIOD)}
        if self.memory and hardware.memory is not None:
            options["mem_limit"] = hardware.memory
            if self.swap:
                options["memswap_limit"] = hardware.memory  # for memory and swap together: none is left for swap
        return options


def options(
    node: NodePlan,
    run: str,
    directory: Path,
    incarnation: int,
    user: User,
    mounts: Sequence[Mount],
    limits: Limits,
    runtimes: Sequence[str] = (),
) -> dict[str, Any]:
    """The arguments of `docker.models.containers.ContainerCollection.create`. ``runtimes``: those of the Engine."""
    made = _common(node.name, run, directory, user) | {
        "name": f"{run}-{node.name}-{incarnation}",
        "hostname": node.name,
        "mounts": mounts,
        "auto_remove": True,  # no container remains, even if the orchestrator has ended
        "log_config": LogConfig(type=LogConfig.types.NONE),  # the driver itself copies the node's output
        **limits.of_hardware(node.hardware),
    }
    return made if node.device == PROCESSOR else with_accelerators(made, runtimes)


def trial_options(
    run: str,
    directory: Path,
    user: User,
    runtimes: Sequence[str],
) -> dict[str, Any]:
    """The arguments for a container that tries accelerators, with the same rights as nodes. Its output is kept."""
    return with_accelerators(_common(TRIAL, run, directory, user) | {"name": f"{run}-{TRIAL}"}, runtimes)


def with_accelerators(made: Mapping[str, Any], runtimes: Sequence[str]) -> dict[str, Any]:
    """The arguments for a container that sees the accelerators of its host, all of them: their numbers are then those
    of the host. NVIDIA's runtime shows those of cards and of Jetsons; without it the Engine is asked for GPUs."""
    if NVIDIA in runtimes:
        shown = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
        return {**made, "runtime": NVIDIA, "environment": made["environment"] | shown}
    return {**made, "device_requests": [DeviceRequest(count=-1, capabilities=[["gpu"]])]}


def _common(
    name: str,
    run: str,
    directory: Path,
    user: User,
) -> dict[str, Any]:
    return {
        "labels": {RUN: run, NODE: name, DIRECTORY: str(directory)},
        # The processes carry the run's labels too: if the Engine dies, `down` finds them without it.
        "environment": ENVIRONMENT | labels(run, directory, "node"),
        "user": f"{user.uid}:{user.gid}",
        "network_mode": "none",  # the fabric attaches data0
        "read_only": True,
        "tmpfs": {"/tmp": SCRATCH},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "ipc_mode": "private",
        "healthcheck": {"test": ["NONE"]},  # the control plane's heartbeats tell more and cost less
    }
