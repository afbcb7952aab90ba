"""The Docker Swarm of this host's Engine: the hosts in it, and the agents of runs, one on each host.

The agents of a run are the tasks of one global service. Swarm starts an agent again that has ended. Labels of services
and secrets are the only state: `ps` and `down` ask the swarm itself what belongs to a run.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from docker.types import (
    ContainerSpec,
    DriverConfig,
    Mount,
    Placement,
    RestartPolicy,
    SecretReference,
    ServiceMode,
    TaskTemplate,
)

from orchestrator.drivers.docker.engine import Engine, plain_words
from orchestrator.drivers.docker.node_image import ARCHITECTURES
from orchestrator.errors import HostError
from orchestrator.host.docker_socket import DIRECTORY, RUN

STANDING = "org.edgebed.standing"
"""The label of what belongs to agents that are left running between runs, see
`orchestrator.drivers.swarm.standing`."""

UNKNOWN_ADDRESSES = ("", "0.0.0.0", "127.0.0.1", "::", "::1")
RESTART_DELAY = 1_000_000_000  # ns, before an agent that has ended is started again
LOG = {"max-size": "1m", "max-file": "1"}  # of an agent; `docker service logs` shows it
STOP_PATIENCE = 30.0  # s; an agent has 10 s to end after SIGTERM
ONCE_PATIENCE = 60.0  # s
FAILED = ("failed", "rejected", "shutdown")
ENDED = ("complete", *FAILED)  # the states of a task that is not started again


Task = Mapping[str, Any]  # the API's answer about a task (`docker service ps`)
Names = Mapping[str, str]  # of hosts, by id


@dataclass(frozen=True)
class SwarmHost:
    """A host of the swarm. Its ``name`` is its host name.

    ``address``       IPv4 or IPv6, under which the other hosts reach it
    ``state``         "ready" or "down", or "unknown" or "disconnected" for a moment; "down" comes 10 to 15 s late
    ``availability``  "active"; "pause" or "drain" if it is to get no tasks
    ``architecture``  as in images: "amd64", "arm64"
    ``memory``        bytes
    ``engine``        the version of its Docker Engine
    """

    id: str
    name: str
    address: str
    manager: bool
    state: str
    availability: str
    architecture: str
    cores: float
    memory: int
    engine: str
    labels: Mapping[str, str]

    @property
    def usable(self) -> bool:
        """Whether it gets an agent."""
        return self.state == "ready" and self.availability == "active"


@dataclass(frozen=True)
class Agent:
    """``state`` is that of the latest task of an agent on one host: "pending", "preparing", "running", "failed", ...
    ``error`` is why an agent ended or did not start, "" while one runs."""

    state: str
    error: str


class Cluster:
    """The swarm, through an Engine that is one of its managers. Methods block, and several threads may call them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._api: Any = engine.client.api  # what is known of its types is not all of it

    @classmethod
    def connect(cls) -> Cluster:
        """Connect to this host's Engine. HostError with the remedy if it does not answer, or manages no swarm."""
        engine = Engine.connect()
        try:
            error = refusal(engine.facts())
            if error is not None:
                raise error
        except BaseException:
            engine.close()
            raise
        return cls(engine)

    def close(self) -> None:
        self._engine.close()

    def members(self) -> list[SwarmHost]:
        """All hosts by name. HostError if two have the same name."""
        hosts = self._hosts()
        error = namesakes(hosts)
        if error is not None:
            raise error
        return sorted(hosts, key=lambda host: host.name)

    def here(self) -> tuple[str, str]:
        """The name of this host, and the address by which it is known in the swarm."""
        facts = self._engine.facts()
        name = str(facts["Name"])
        address = str(facts["Swarm"]["NodeAddr"])
        return name, address

    def id(self) -> str:
        """What identifies the swarm."""
        facts = self._engine.facts()
        return str(facts["Swarm"]["Cluster"]["ID"])

    def start_agents(
        self,
        run: str,
        directory: Path,
        image: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        mounts: Mapping[Path, Path],
        secrets: Mapping[str, bytes],
        hosts: Collection[str] | None = None,
        restart: Literal["any", "none"] = "any",
        further: Mapping[str, str] | None = None,
    ) -> None:
        """Have the swarm start an agent as root in the network of each host of ``hosts``, by default of each host.

        The image must be on the hosts, or in a registry; ``arguments`` are for its own command. ``mounts`` are places
        on a host and in the agent; Swarm starts no agent where a place is missing. ``secrets`` become files of these
        names in /run/secrets that only root reads. A host that joins the swarm later gets an agent too. ``restart``
        says after which ends an agent is started again: "any" or "none". ``further``: more labels than those of a run.
        After an error `stop_agents` removes what was made.
        """
        members = self.members()
        wanted = members if hosts is None else _only(members, hosts)
        excluded = [member for member in members if member not in wanted]
        labels = _labels(run, directory) | dict(further or {})
        bound = []
        for outside, inside in mounts.items():
            mount = Mount(str(inside), str(outside), type="bind")
            bound.append(mount)
        with plain_words(f"starting the agents of {run}"):
            references = []
            for number, (name, content) in enumerate(secrets.items()):
                secret = f"{run}-{number}"
                created = self._api.create_secret(secret, content, labels)
                reference = SecretReference(created["ID"], secret, name, mode=0o400)
                references.append(reference)
            container = ContainerSpec(
                image,
                args=list(arguments),
                env=dict(environment),
                user="0:0",
                mounts=bound,
                secrets=references,
            )
            template = TaskTemplate(
                container,
                restart_policy=RestartPolicy(restart, delay=RESTART_DELAY),
                # Several constraints must all be met, so that they cannot list the hosts that are wanted.
                placement=Placement([f"node.id!={member.id}" for member in excluded]),
                log_driver=DriverConfig("json-file", LOG),
                networks=["host"],
            )
            self._api.create_service(template, name=run, labels=labels, mode=ServiceMode("global"))

    def run_once(
        self,
        run: str,
        directory: Path,
        image: str,
        arguments: Sequence[str],
        hosts: Collection[str],
        **others: Any,
    ) -> dict[str, str]:
        """Run a task to its end on each host, see `start_agents`. Returns where it failed, and why."""
        try:
            self.start_agents(run, directory, image, arguments, hosts=hosts, restart="none", **others)
            deadline = time.monotonic() + ONCE_PATIENCE
            while True:
                agents = self.agents(run)
                ended = {host for host, agent in agents.items() if agent.state in ENDED}
                running = [host for host in hosts if host not in ended]
                if not running or time.monotonic() > deadline:
                    break
                time.sleep(0.1)
        finally:
            self.stop_agents(run)
        failures = dict.fromkeys(running, f"no end after {ONCE_PATIENCE:.0f} s")
        for host, agent in agents.items():
            if agent.state in FAILED:
                failures[host] = agent.error
        return failures

    def agents(self, run: str) -> dict[str, Agent]:
        """The agents of a run by host, as Swarm last saw them; it does not notice that a host is down."""
        with plain_words(f"asking the swarm for the agents of {run}"):
            tasks = self._api.tasks(filters=_of(run))
        names = {host.id: host.name for host in self._hosts()}
        return latest(tasks, names)

    def stop_agents(self, run: str) -> list[str]:
        """Remove the agents and secrets of a run, and wait a while for the agents' end. Returns the hosts on which the
        swarm does not know them ended, such as hosts that are down. These end them when they reach the swarm again."""
        self.dismiss_agents(run)
        deadline = time.monotonic() + STOP_PATIENCE
        left = self.agents(run)
        while left:
            answering = {host.name for host in self._hosts() if host.state == "ready"}
            if answering.isdisjoint(left) or time.monotonic() > deadline:
                break
            time.sleep(0.1)
            left = self.agents(run)
        return sorted(left)

    def dismiss_agents(self, run: str) -> None:
        """Remove the agents and secrets of a run. Does not wait for the agents' end."""
        with plain_words(f"stopping the agents of {run}"):
            for service in self._api.services(filters=_of(run)):
                self._api.remove_service(service["ID"])
            for secret in self._api.secrets(filters=_of(run)):
                self._api.remove_secret(secret["ID"])

    def labels(self, run: str) -> dict[str, str] | None:
        """The labels of the agents of a run; None if it has none."""
        with plain_words(f"asking the swarm for the agents of {run}"):
            services = self._api.services(filters=_of(run))
        if services:
            return dict(services[0]["Spec"]["Labels"])
        return None

    def mark(self, run: str, directory: Path) -> None:
        """Let the swarm know of a run that has no agents of its own. `dismiss_agents` ends that."""
        labels = _labels(run, directory)
        with plain_words(f"marking the run {run} in the swarm"):
            self._api.create_secret(run, b"uses agents that were left running", labels)

    def runs(self) -> dict[str, Path]:
        """The runs with agents or secrets in the swarm, and their directories there. Agents left running are no run."""
        with plain_words("asking the swarm for runs"):
            services = self._api.services(filters={"label": RUN})
            secrets = self._api.secrets(filters={"label": RUN})
        directories = {}
        for row in [*services, *secrets]:
            labels = row["Spec"]["Labels"]
            if STANDING not in labels:
                directories[labels[RUN]] = Path(labels.get(DIRECTORY, ""))
        return directories

    def _hosts(self) -> list[SwarmHost]:
        with plain_words("asking the swarm for its hosts"):
            nodes = self._api.nodes()
            return [member(node) for node in nodes]


def refusal(facts: Mapping[str, Any]) -> HostError | None:
    """Why an Engine cannot manage a swarm, from its facts (`docker info`); None if it can."""
    swarm = facts.get("Swarm") or {}
    state = swarm.get("LocalNodeState") or "inactive"
    if state == "active" and swarm.get("ControlAvailable"):
        return None
    if state == "active":
        name = facts["Name"]
        managers = [_host_of(manager["Addr"]) for manager in swarm.get("RemoteManagers") or ()]
        listed = f" ({', '.join(managers)})" if managers else ""
        what = f"this host, {name}, does not manage its swarm"
        remedy = f"run this on a manager{listed}, or make it a manager there"
        return HostError(what, remedy, [f"docker node promote {name}"])
    if state == "inactive":
        remedy = "make one of this host, and join the others to it with the command that this prints"
        return HostError("this host's Docker Engine is in no swarm", remedy, ["docker swarm init"])
    if state == "locked":
        return HostError("this host's swarm is locked", "unlock it with its key", ["docker swarm unlock"])
    reason = swarm.get("Error") or f"it is {state}"
    remedy = "have it leave the swarm, and create or join one again"
    return HostError(
        f"this host's Docker Engine is not yet or no longer in its swarm: {reason}",
        remedy,
        ["docker swarm leave --force"],
    )


def member(node: Mapping[str, Any]) -> SwarmHost:
    """A host, from the API's answer about a node (`docker node inspect`)."""
    spec = node["Spec"]
    status = node["Status"]
    about = node.get("Description") or {}
    resources = about.get("Resources") or {}
    platform = about.get("Platform") or {}
    machine = platform.get("Architecture", "")
    engine = about.get("Engine") or {}
    address = status.get("Addr", "")
    if address in UNKNOWN_ADDRESSES:  # a manager that knows itself by no other
        as_manager = node.get("ManagerStatus") or {}
        address = _host_of(as_manager.get("Addr", ""))
    return SwarmHost(
        id=node["ID"],
        name=about.get("Hostname") or node["ID"],
        address=address,
        manager=spec["Role"] == "manager",
        state=status["State"],
        availability=spec["Availability"],
        architecture=ARCHITECTURES.get(machine, machine),
        cores=resources.get("NanoCPUs", 0) / 1e9,
        memory=resources.get("MemoryBytes", 0),
        engine=engine.get("EngineVersion", ""),
        labels=dict(spec.get("Labels") or {}),
    )


def namesakes(members: Iterable[SwarmHost]) -> HostError | None:
    """The error if hosts have the same name, so that a scenario cannot distinguish them."""
    members = list(members)
    counts = Counter(host.name for host in members)
    double = [host for host in members if counts[host.name] > 1]
    if not double:
        return None
    double.sort(key=lambda host: (host.name, host.address))
    listed = ", ".join(f"{host.name} ({host.address}, {host.state})" for host in double)
    what = f"hosts of the swarm have the same name: {listed}"
    gone = [host for host in double if host.state == "down"]
    if gone:
        remedy = "remove those that are gone, such as a host from before it joined again"
        commands = [f"docker node rm --force {host.id}" for host in gone]
        return HostError(what, remedy, commands)
    return HostError(
        what,
        "give each a name of its own, and restart its Engine",
        ["hostnamectl set-hostname NAME", "systemctl restart docker"],
    )


def latest(tasks: Iterable[Task], names: Names) -> dict[str, Agent]:
    """The agents by host, from the API's answers about tasks (`docker service ps`); ``names`` are the hosts' by id."""
    agents: dict[str, Agent] = {}
    in_order = sorted(tasks, key=lambda task: str(task["CreatedAt"]))
    for task in in_order:
        status = task["Status"]
        node = task.get("NodeID", "")
        if not node:  # not yet given to a host
            continue
        host = names.get(node, node)
        state = status["State"]
        former_error = agents[host].error if host in agents else ""
        error = ""
        if state != "running":
            error = status.get("Err") or former_error
        agents[host] = Agent(state, error)
    return agents


def _only(members: Iterable[SwarmHost], names: Collection[str]) -> list[SwarmHost]:
    """The members of these names. HostError if there is no such host."""
    by_name = {member.name: member for member in members}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise HostError(f"the swarm has no host {', '.join(missing)}", f"its hosts are {', '.join(by_name)}")
    return [by_name[name] for name in names]


def _labels(run: str, directory: Path) -> dict[str, str]:
    return {RUN: run, DIRECTORY: str(directory)}


def _of(run: str) -> dict[str, str]:
    return {"label": f"{RUN}={run}"}


def _host_of(address: str) -> str:
    """The address without its port: "10.0.0.1:2377", "[fd00::1]:2377"."""
    host, _, _ = address.rpartition(":")
    return host.strip("[]")
