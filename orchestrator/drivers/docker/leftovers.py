"""The containers of runs on this host, for commands that must also work without Docker.

The SDK is imported only if an Engine answers, because its import takes a quarter of a second.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from orchestrator.errors import HostError
from orchestrator.host.docker_socket import NodeContainer, reach

if TYPE_CHECKING:
    from orchestrator.drivers.docker.engine import Engine


@contextlib.contextmanager
def engine() -> Iterator[Engine | None]:
    """The Engine while the body runs, or None if no Engine answers."""
    try:
        reach()
    except HostError:
        yield None
        return
    from orchestrator.drivers.docker.engine import Engine

    connected = Engine.connect()
    try:
        yield connected
    finally:
        connected.close()


def listed(run: str | None = None) -> list[NodeContainer]:
    """The containers of one run, or of all runs; an empty list if no Engine answers."""
    with engine() as connected:
        if connected is None:
            return []
        return connected.containers(run)
