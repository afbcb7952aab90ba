"""The host's Docker Engine without the SDK: its address, whether it answers, and the labels of runs' containers."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import HostError

RUN = "org.edgebed.run"  # this and the next two: labels of a run's containers
NODE = "org.edgebed.node"
DIRECTORY = "org.edgebed.directory"
AGENT = "org.edgebed.agent"  # the label of the container of a run's agent, which removes those of the run
USUAL = "unix:///var/run/docker.sock"


@dataclass(frozen=True)
class NodeContainer:
    """A container of a run. ``pid`` is the id of its first process, None while the container does not run."""

    id: str
    run: str
    node: str
    directory: Path
    pid: int | None


def address() -> str:
    """The address of the Engine: $DOCKER_HOST, otherwise the usual address."""
    return os.environ.get("DOCKER_HOST") or USUAL


def reach() -> None:
    """HostError with the reason if no Engine is reachable. The SDK reports all reasons alike."""
    if not address().startswith("unix://"):
        raise HostError(
            f"DOCKER_HOST is {address()}, but nodes are attached to their links on this host",
            "name this host's own Engine",
            [f"export DOCKER_HOST={USUAL}"],
        )
    path = address().removeprefix("unix://")
    with socket.socket(socket.AF_UNIX) as trial:
        try:
            trial.connect(path)
        except PermissionError:
            raise HostError(
                f"this user may not use the Docker Engine at {path}",
                "run as root, or join the group of that socket and log in again",
                ["sudo usermod --append --groups docker $USER"],
            ) from None
        except OSError as error:
            raise HostError(
                f"no Docker Engine answers at {path} ({error.strerror or error})",
                "say in DOCKER_HOST where it is, or install the package docker.io and start it as root",
                ["systemctl start docker"],
            ) from None
