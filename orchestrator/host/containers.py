"""Where this host's Docker Engine is, and the containers of runs in it: for those who look, used or not.

The SDK is imported only where an Engine answers: that takes a quarter of a second.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import HostError

if TYPE_CHECKING:
    from orchestrator.host.docker import Engine

RUN, NODE, DIRECTORY = "org.edgebed.run", "org.edgebed.node", "org.edgebed.directory"
"""Labels of a run's containers."""

USUAL = "unix:///var/run/docker.sock"


@dataclass(frozen=True)
class NodeContainer:
    """A container that belongs to a run. ``pid`` of its first process, None while it does not run."""

    id: str
    run: str
    node: str
    directory: Path
    pid: int | None


def address() -> str:
    """Where the Engine is: $DOCKER_HOST, else the usual place."""
    return os.environ.get("DOCKER_HOST") or USUAL


def reach() -> None:
    """HostError if no Engine can be had, with the reason, which the SDK tells in one way whatever it is."""
    if not address().startswith("unix://"):
        raise HostError(
            f"DOCKER_HOST is {address()}: nodes are attached to their links on this host, so its own Engine is needed,"
            f" such as {USUAL}"
        )
    path = address().removeprefix("unix://")
    with socket.socket(socket.AF_UNIX) as trial:
        try:
            trial.connect(path)
        except PermissionError:
            raise HostError(
                f"this user may not use the Docker Engine at {path}: run as root, or join the group of that socket"
                " (`sudo usermod --append --groups docker $USER`, then log in again)"
            ) from None
        except OSError as error:
            raise HostError(
                f"no Docker Engine answers at {path} ({error.strerror or error}): start it (`systemctl start docker`,"
                " or `dockerd`), or say in DOCKER_HOST where it is"
            ) from None


@contextlib.contextmanager
def engine() -> Iterator[Engine | None]:
    """The Engine while the body runs, or None where none answers."""
    try:
        reach()
    except HostError:
        yield None
        return
    from orchestrator.host.docker import Engine

    connected = Engine.connect()
    try:
        yield connected
    finally:
        connected.close()


def listed(run: str | None = None) -> list[NodeContainer]:
    """The containers of one run, or of all runs; none where no Engine answers."""
    with engine() as found:
        return [] if found is None else found.containers(run)
