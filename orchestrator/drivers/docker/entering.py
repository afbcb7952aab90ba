"""The command line that runs a command in the container of a node. Containers are found by their labels."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from orchestrator.drivers.docker import leftovers
from orchestrator.errors import HostError, RunError
from orchestrator.host.docker_socket import NODE, RUN, address


def enter(
    run: str,
    node: str,
    planned: Mapping[str, object],
    *,
    terminal: bool,
) -> list[str]:
    """See `orchestrator.drivers.base.EntersNodes`."""
    containers = []
    for container in leftovers.listed(run):
        if container.node == node and container.pid is not None:
            containers.append(container)
    if not containers:
        host = planned.get("host")
        if host is not None:
            marks = f"--filter label={RUN}={run} --filter label={NODE}={node}"
            raise RunError(
                f"{node} has no container on this host; it belongs on {host}: run there"
                f" `docker exec -it $(docker ps -q {marks}) sh`"
            )
        raise RunError(f"{node} has no running container")
    if shutil.which("docker") is None:
        raise HostError(
            "the command 'docker' is missing, which enters containers",
            "install the package docker.io (Debian 13 and later: docker-cli)",
            ["apt-get install docker.io"],
        )
    prefix = ["docker", "--host", address(), "exec", "--interactive"]
    if terminal:
        prefix.append("--tty")
    return [*prefix, containers[0].id]
