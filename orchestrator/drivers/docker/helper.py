"""The hub for a user with access to Docker but without root: its anchor runs in a container with more rights.

The network namespaces of containers belong to the host's root, and this user gets root's rights only through the
Engine. So the hub is the namespace of a helper container. Commands enter other namespaces from there, by the `docker`
command, with the orchestrator's own file system. Like every anchor, the helper ends when its input ends; then the
Engine removes it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from orchestrator.errors import HostError
from orchestrator.fabric.namespaces.hub import ANCHOR, Hub, start_command
from orchestrator.host.docker_socket import DIRECTORY, NODE, RUN
from orchestrator.host.process.processes import TOKEN, labels

PART = "hub"
RIGHTS = ("SYS_ADMIN", "SYS_PTRACE", "NET_ADMIN", "SYS_NICE")
"""Capabilities beyond a container's default: to enter namespaces of other users' processes, to make interfaces and
qdiscs, and to get the switch's scheduling policy."""

PATIENCE = 60.0  # s for a busy Engine to start the helper


class HelperHub(Hub):
    """See Hub. ``name`` is the container's."""

    def __init__(
        self,
        anchor: asyncio.subprocess.Process,
        name: str,
        label: Mapping[str, str],
        directory: Path,
    ) -> None:
        super().__init__(anchor, True, label, directory)
        self._name = name

    @classmethod
    async def start(
        cls,
        run: str,
        directory: Path,
        image: str,
    ) -> HelperHub:
        """Start the helper from ``image``, which must exist locally and contain util-linux."""
        error = without_client()
        if error is not None:
            raise error
        name = f"{run}-{PART}"
        label = labels(run, directory, PART)
        marks = {RUN: run, NODE: PART, DIRECTORY: str(directory)}
        argv = ["docker", "run", "--interactive", "--rm", "--pull", "never"]
        argv += ["--name", name]
        for key, value in marks.items():
            argv += ["--label", f"{key}={value}"]
        for right in RIGHTS:
            argv += ["--cap-add", right]
        argv += ["--security-opt", "apparmor=unconfined"]
        argv += ["--user", "0:0", "--pid", "host"]
        argv += ["--network", "none"]
        argv += ["--log-driver", "none", "--no-healthcheck"]
        argv += _environment(label)
        argv += ["--entrypoint", "nsenter", image]
        argv += [*_as_seen_here(), *ANCHOR]
        anchor = await start_command(argv, label)
        hub = cls(anchor, name, label, directory)
        await hub.confirm(PATIENCE)
        return hub

    def _refused(self, reason: str) -> HostError:
        return HostError(f"the Docker Engine did not start the container that holds the links ({reason})")

    def enter(
        self,
        pid: int | None = None,
        *,
        network: bool = True,
    ) -> list[str]:
        command = ["docker", "exec", "--interactive"]
        command += _environment(self._label)
        command += [self._name, "nsenter", *_as_seen_here()]
        if pid is not None and network:
            command += ["nsenter", "--target", str(pid), "--net", "--"]
        return command


def without_client() -> HostError | None:
    """The error if the command `docker` is missing; only this hub needs it."""
    if shutil.which("docker") is not None:
        return None
    return HostError(
        "without root the docker driver needs the command 'docker', which is missing",
        "install the package docker.io (Debian 13 and later: docker-cli), or run as root",
        ["apt-get install docker.io"],
    )


def _as_seen_here() -> list[str]:
    """Arguments of `nsenter` for this process's file system and working directory."""
    pid = str(os.getpid())
    return ["--target", pid, "--mount", "--wd", "--"]


def _environment(variables: Mapping[str, str]) -> list[str]:
    """Arguments of `docker` for these variables; `docker` takes TOKEN from its own environment."""
    words = []
    for key, value in variables.items():
        setting = key if key == TOKEN else f"{key}={value}"
        words += ["--env", setting]
    return words
