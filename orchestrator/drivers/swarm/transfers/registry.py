"""Images in registries: the digest that a name has now, so that all hosts get the same image."""

from __future__ import annotations

from contextlib import closing

from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.swarm.agents import agent_image
from orchestrator.drivers.swarm.transfers.images import Pinned, is_in_registry, pinned
from orchestrator.errors import DriverError, HostError


def pin(engine: Engine, name: str) -> Pinned:
    """The image of a registry as it is now. HostError if the registry does not answer, or has no such image."""
    try:
        return pinned(name, engine.in_registry(name))
    except DriverError as error:
        raise HostError(
            str(error),
            "is the name right, does this host reach the registry, and is its user logged in there (`docker login`)?",
        ) from None


def image_of_agents() -> str:
    """The image of agents, with its digest if it is in a registry. HostError as `pin` raises it."""
    name = agent_image.image_name()
    if not is_in_registry(name):
        return name
    with closing(Engine.connect()) as engine:
        return pin(engine, name).reference
