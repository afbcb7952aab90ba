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

Arguments = Mapping[str, Any]

ENVIRONMENT = {"HOME": "/tmp", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Nodes share the host's cores, and can write only to /tmp."""


def is_podman(facts: Mapping[str, Any]) -> bool:
    """Whether what answers as a Docker Engine is Podman. ``facts``: `docker info`."""
    return "BuildahVersion" in facts


def product(facts: Mapping[str, Any]) -> str:
    """The version of an Engine, with its name if that is not Docker."""
    version = facts["ServerVersion"]
    if is_podman(facts):
        return f"Podman {version}"
    return f"{version}"


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
        processes = bool(facts.get("PidsLimit"))
        if processes and is_podman(facts):
            # Podman says so on hosts without the controller, too, where its containers then do not start.
            processes = has_controller("pids")
        return cls(
            cpu=bool(facts.get("CpuCfsQuota")),
            memory=bool(facts.get("MemoryLimit")),
            swap=bool(facts.get("SwapLimit")),
            processes=processes,
        )

    def notes(self) -> list[str]:
        """One sentence for each limit that is not enforced."""
        notes = []
        missing = [name for name in ("cpu", "memory") if not getattr(self, name)]
        if missing:
            reason = "the Docker Engine's host lacks the cgroup controllers"
            names = " and ".join(missing)
            notes.append(UNLIMITED.format(names, reason))
        if self.memory and not self.swap:
            notes.append(CAN_SWAP)
        if not self.processes:
            notes.append("the number of a node's processes is not limited: the Docker Engine's host cannot")
        return notes

    def of_hardware(self, hardware: HardwareClass) -> dict[str, Any]:
        """The arguments that limit a container to its hardware's cores and memory."""
        options: dict[str, Any] = {}
        if self.processes:
            options["pids_limit"] = PROCESSES
        if self.cpu and hardware.cores is not None:
            options["cpu_period"] = _PERIOD
            options["cpu_quota"] = round(hardware.cores * _PERIOD)
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
    own = {
        "name": f"{run}-{node.name}-{incarnation}",
        "hostname": node.name,
        "mounts": mounts,
        "auto_remove": True,  # no container remains, even if the orchestrator has ended
        "log_config": LogConfig(type=LogConfig.types.NONE),  # the driver itself copies the node's output
        **limits.of_hardware(node.hardware),
    }
    arguments = _common(node.name, run, directory, user) | own
    if node.device == PROCESSOR:
        return arguments
    return with_accelerators(arguments, runtimes)


def trial_options(
    run: str,
    directory: Path,
    user: User,
    runtimes: Sequence[str],
) -> dict[str, Any]:
    """The arguments for a container that tries accelerators, with the same rights as nodes. Its output is kept."""
    arguments = _common(TRIAL, run, directory, user)
    arguments["name"] = f"{run}-{TRIAL}"
    return with_accelerators(arguments, runtimes)


def with_accelerators(arguments: Arguments, runtimes: Sequence[str]) -> dict[str, Any]:
    """The arguments for a container that sees the accelerators of its host, all of them: their numbers are then those
    of the host. NVIDIA's runtime shows those of cards and of Jetsons; without it, GPUs are requested of the Engine."""
    if NVIDIA in runtimes:
        visible = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
        environment = arguments["environment"] | visible
        return {**arguments, "runtime": NVIDIA, "environment": environment}
    gpus = DeviceRequest(count=-1, capabilities=[["gpu"]])
    return {**arguments, "device_requests": [gpus]}


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
        "healthcheck": {"test": ["NONE"]},  # the control plane's heartbeats report more and cost less
    }
