"""The image of agents, and whether it fits this host and this version. Pure, except for the environment."""

from __future__ import annotations

import os

from orchestrator.drivers.docker.node_image import ARCHITECTURES, Attributes, labels_of
from orchestrator.drivers.hosts.agents.channel import PROTOCOL
from orchestrator.errors import HostError

TASK = ("task", "orchestrator.drivers.swarm.agent_task")  # the first words of each task of a service
CHANNEL_LABEL = "org.edgebed.channel"
"""The label with the protocol that an agent speaks with the orchestrator, `channel.PROTOCOL`."""

BUILD = "docker build --file images/agent/Dockerfile --tag {name} ."


def image_name() -> str:
    """The name of the image of agents: $EDGEBED_AGENT_IMAGE, otherwise ``edgebed-agent``."""
    return os.environ.get("EDGEBED_AGENT_IMAGE") or "edgebed-agent"


def problem(name: str, image: Attributes | None, machine: str) -> HostError | None:
    """Why agents cannot be made from this image on this host, with the remedy; None if they can. ``image`` has its
    attributes. ``machine`` is the kernel's name for the machine of the Engine's host."""
    if image is None:
        what = f"the Docker Engine of this host has no image '{name}', from which agents are made"
        return _unfit(what, name)
    architecture = image["Architecture"]
    wanted = ARCHITECTURES.get(machine, machine)
    if architecture != wanted:
        return _unfit(f"the image '{name}' of agents is for {architecture}, this host is {wanted}", name)
    protocol = labels_of(image).get(CHANNEL_LABEL)
    if protocol is None:
        return _unfit(f"'{name}' is not an image of agents: it has no label {CHANNEL_LABEL}", name)
    if protocol != str(PROTOCOL):
        what = f"the agents in the image '{name}' speak protocol {protocol}, the orchestrator {PROTOCOL}"
        return _unfit(what, name)
    return None


def _unfit(what: str, name: str) -> HostError:
    remedy = (
        "build it with `images/build.sh agent` from the version of the orchestrator, or in a folder that"
        " `edgebed image` writes, and copy it to each host (`edgebed docs hosts`)"
    )
    command = BUILD.format(name=name)
    return HostError(what, remedy, [command])
