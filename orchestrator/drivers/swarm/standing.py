"""Agents that are left running between runs, and who may use them.

They are the tasks of one service, as those of a run are. Each waits for an orchestrator at a fixed address: a port of
the manager, at which nobody listens between runs. CURVE proves both sides to each other, so an agent serves only an
orchestrator with the secret key, and an orchestrator hears only agents with theirs. Swarm brings the agents their keys
as a secret. Their user has the others in a file that only this user can read.

An agent serves one run. Then its container ends with all that it has made, and another one begins to wait.
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
from orchestrator.drivers.hosts.agents.channel import PROTOCOL
from orchestrator.drivers.hosts.agents.listener import ANEW
from orchestrator.drivers.swarm import agent_image
from orchestrator.drivers.swarm.cluster import STANDING, Cluster
from orchestrator.drivers.swarm.images import identity, is_in_registry
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
    """What the swarm tells of agents that were left running: the public key ``server`` of who may use them, their
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
        return cls(labels[STANDING], labels[VERSION], labels[IMAGE], Path(labels.get(DIRECTORY, "")))


def own_version() -> str:
    """The version of edgebed, and of the channel."""
    return f"{importlib.metadata.version('edgebed')}, protocol {PROTOCOL}"


def identity_of(engine: Engine, reference: str) -> str:
    """What tells an image of agents, as `image_of_agents` gives it, from any other; "" if the Engine has none."""
    if is_in_registry(reference):
        return reference
    found = engine.image(reference)
    return "" if found is None else identity(found)


def standing(cluster: Cluster) -> Standing | None:
    """The agents that were left running; None if there are none."""
    labels = cluster.labels(NAME)
    return None if labels is None else Standing.of(labels)


def outdated(found: Standing, image: str) -> HostError | None:
    """Why runs cannot use agents that were left running; None if they can. ``image`` identifies the present one."""
    if found.version != own_version():
        what = f"the agents that `hosts up` left running are of version {found.version}, this is {own_version()}"
    elif found.image != image:
        what = (
            "the agents that `hosts up` left running are made from another image than"
            f" '{agent_image.image_name()}' is now"
        )
    else:
        return None
    return HostError(what, "replace them", ANEW)


def keys_folder() -> Path:
    """Where the keys lie: a folder in the user's state (XDG base directories)."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "edgebed" / "agents"


def _file_of(swarm: str) -> Path:
    return keys_folder() / f"{swarm}.json"


def _keys_of(swarm: str, server: str) -> Access | None:
    """This user's keys for agents of a swarm whose orchestrator has this public key; None if it has none."""
    try:
        keys = {name: Keypair(**pair) for name, pair in json.loads(_file_of(swarm).read_text()).items()}
        found = Access(keys["server"], keys["agents"], NAME)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        raise HostError(f"{_file_of(swarm)} does not hold the keys of agents", "restart them", ANEW) from None
    return found if found.server.public == server else None


def write_keys(swarm: str, access: Access) -> None:
    """Keep the keys for the agents of a swarm. Nobody but this user can read them."""
    folder = keys_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(_file_of(swarm), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w") as stream:
        os.fchmod(descriptor, 0o600)
        json.dump({"server": asdict(access.server), "agents": asdict(access.agents)}, stream)


def is_ours(swarm: str, server: str) -> bool:
    """Whether this user has the keys for agents whose orchestrator has this public key."""
    return _keys_of(swarm, server) is not None


def forget_keys(swarm: str) -> None:
    _file_of(swarm).unlink(missing_ok=True)


def taken(swarm: str, server: str, stack: ExitStack) -> Access | None:
    """Take the agents into use until ``stack`` closes. None if they are in use, or this user lacks their secret."""
    with contextlib.suppress(FileNotFoundError, BlockingIOError), ExitStack() as holding:
        stream = holding.enter_context(_file_of(swarm).open())
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        keys = _keys_of(swarm, server)
        if keys is not None:
            stack.push(holding.pop_all())
            return keys
    return None


def access(cluster: Cluster, image: str, stack: ExitStack) -> Access:
    """The agents that were left running, until ``stack`` closes; or keys for own agents, to be started from ``image``,
    if this user may not use them or another does. HostError if they are outdated."""
    found = standing(cluster)
    if found is None or (use := taken(cluster.id(), found.server, stack)) is None:
        return Access(keypair(), keypair())
    with contextlib.closing(Engine.connect()) as engine:
        error = outdated(found, identity_of(engine, image))
        if error is not None:
            raise error
    return use
