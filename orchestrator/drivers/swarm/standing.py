"""Agents that are left running between runs, and who may use them.

They are the tasks of one service, as those of a run are. Each waits for an orchestrator at a fixed address: a port of
the manager, which no process uses between runs. CURVE proves both sides to each other, so an agent serves only an
orchestrator with the secret key, and an orchestrator accepts only agents with theirs. Swarm gives the agents their keys
as a secret. Their user has the others in a file that only this user can read.

An agent serves one run. Then its container ends with all that it has made, and another one starts and waits.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from node.assignment import Keypair
from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.docker.node_image import identity
from orchestrator.drivers.hosts.agents.channel import PROTOCOL
from orchestrator.drivers.hosts.agents.listener import ANEW
from orchestrator.drivers.swarm import agent_image
from orchestrator.drivers.swarm.cluster import STANDING, Cluster
from orchestrator.drivers.swarm.images import is_in_registry
from orchestrator.errors import HostError
from orchestrator.host.docker_socket import DIRECTORY
from orchestrator.planning.keys import keypair

NAME = "edgebed-agents"  # the service of agents that are left running. A swarm has at most one of this name.
PORT = 61147  # TCP; no service has registered it, and Linux gives a socket no such port by chance
VERSION = "org.edgebed.version"
IMAGE = "org.edgebed.image"


@dataclass(frozen=True)
class Access:
    """The keys of an orchestrator and its agents. ``service``: those left running, "" for agents of the run's own."""

    server: Keypair
    agents: Keypair
    service: str = ""


@dataclass(frozen=True)
class Standing:
    """What the swarm shows of agents that were left running: the public key ``server`` of who may use them, their
    ``version`` (of edgebed, and of the channel), what identifies their ``image``, and the ``folder`` of the keys."""

    server: str
    version: str
    image: str
    folder: Path

    def labels(self) -> dict[str, str]:
        return {STANDING: self.server, VERSION: self.version, IMAGE: self.image}

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> Standing | None:
        """None for labels of anything else."""
        if STANDING not in labels:
            return None
        folder = Path(labels.get(DIRECTORY, ""))
        return cls(labels[STANDING], labels[VERSION], labels[IMAGE], folder)


def own_version() -> str:
    """The version of edgebed, and of the channel."""
    version = importlib.metadata.version("edgebed")
    return f"{version}, protocol {PROTOCOL}"


def identity_of(engine: Engine, reference: str) -> str:
    """What distinguishes an image of agents, as `image_of_agents` gives it, from any other; "" if the Engine has
    none."""
    if is_in_registry(reference):
        return reference
    image = engine.image(reference)
    if image is None:
        return ""
    return identity(image)


def standing(cluster: Cluster) -> Standing | None:
    """The agents that were left running; None if there are none."""
    labels = cluster.labels(NAME)
    if labels is None:
        return None
    return Standing.of(labels)


def outdated(left_running: Standing, image: str) -> HostError | None:
    """Why runs cannot use agents that were left running; None if they can. ``image`` identifies the present one."""
    version = own_version()
    if left_running.version != version:
        what = f"the agents that `hosts up` left running are of version {left_running.version}, this is {version}"
    elif left_running.image != image:
        name = agent_image.image_name()
        what = f"the agents that `hosts up` left running are made from another image than '{name}' is now"
    else:
        return None
    return HostError(what, "replace them", ANEW)


def keys_folder() -> Path:
    """The folder of the keys, in the user's state (XDG base directories)."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "edgebed" / "agents"


def _file_of(swarm: str) -> Path:
    return keys_folder() / f"{swarm}.json"


def _keys_of(swarm: str, server: str) -> Access | None:
    """This user's keys for agents of a swarm and an orchestrator with this public key; None if it has none."""
    file = _file_of(swarm)
    try:
        data = json.loads(file.read_text())
        keys = {name: Keypair(**pair) for name, pair in data.items()}
        access = Access(keys["server"], keys["agents"], NAME)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        raise HostError(f"{file} does not hold the keys of agents", "restart them", ANEW) from None
    if access.server.public != server:
        return None
    return access


def write_keys(swarm: str, access: Access) -> None:
    """Keep the keys for the agents of a swarm. Only this user can read them."""
    folder = keys_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = {"server": asdict(access.server), "agents": asdict(access.agents)}
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    descriptor = os.open(_file_of(swarm), flags, 0o600)
    with open(descriptor, "w") as stream:
        os.fchmod(descriptor, 0o600)
        json.dump(keys, stream)


def is_ours(swarm: str, server: str) -> bool:
    """Whether this user has the keys for agents of an orchestrator with this public key."""
    return _keys_of(swarm, server) is not None


def forget_keys(swarm: str) -> None:
    _file_of(swarm).unlink(missing_ok=True)


def taken(swarm: str, server: str, stack: ExitStack) -> Access | None:
    """Reserve the agents until ``stack`` closes. None if they are in use, or this user lacks their secret."""
    with contextlib.suppress(FileNotFoundError, BlockingIOError), ExitStack() as holding:
        file = _file_of(swarm)
        stream = holding.enter_context(file.open())
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        keys = _keys_of(swarm, server)
        if keys is not None:
            stack.push(holding.pop_all())
            return keys
    return None


def access(cluster: Cluster, image: str, stack: ExitStack) -> Access:
    """The agents that were left running, until ``stack`` closes; or keys for own agents, to be started from ``image``,
    if this user may not use them or another does. HostError if they are outdated."""
    left_running = standing(cluster)
    if left_running is None:
        return Access(keypair(), keypair())
    reserved = taken(cluster.id(), left_running.server, stack)
    if reserved is None:
        return Access(keypair(), keypair())
    with contextlib.closing(Engine.connect()) as engine:
        error = outdated(left_running, identity_of(engine, image))
        if error is not None:
            raise error
    return reserved
