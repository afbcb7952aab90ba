"""The task of an agent's service: it starts the container that does the work, and holds it.

Swarm starts the task again when it has ended. Each starts by removing what the one before may have left on this host.
`sweep` is a task that does nothing else.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docker.errors import NotFound
from docker.types import LogConfig, Mount

from orchestrator.drivers.docker.emulation import HANDLERS
from orchestrator.drivers.docker.engine import Engine, plain_words, unless_gone
from orchestrator.drivers.docker.helper import RIGHTS
from orchestrator.drivers.hosts.agents.container import HANDLERS_HERE, SENSOR_FOLDERS, name_of
from orchestrator.drivers.hosts.agents.settings import (
    DATASETS,
    FILE,
    FOLDER,
    HOST,
    IMAGE,
    LEFT_BY,
    ORPHANED,
    SOCKET,
    Settings,
)
from orchestrator.drivers.swarm.cluster import Cluster, refusal
from orchestrator.errors import HostError
from orchestrator.host.docker_socket import AGENT, RUN, NodeContainer

VOLUME = "edgebed-data"
VOLUME_LABEL = "org.edgebed.data"
"""The volume of the data sets that a host keeps, and its label."""
SECRET = Path("/run/secrets") / FILE


def main(words: Sequence[str]) -> int:
    """Run the task with these words, see `orchestrator.agent.__main__`. Returns the exit code."""
    if list(words) == ["serve"]:
        return serve()
    if list(words) in (["sweep"], ["sweep", "data"]):
        return sweep(data="data" in words)
    raise HostError("the words of the task are `serve`, or `sweep` and `data`")


def serve() -> int:
    """Hold the container until its end, repeatedly if the agent is left running. Returns its exit code."""
    line = SECRET.read_bytes()
    settings = Settings.from_json(line)
    with contextlib.closing(Engine.connect()) as engine:
        while True:
            try:
                code, run = _hold(engine, settings, line)
            finally:
                remove(engine, settings.run)
            if code == ORPHANED and run is not None:
                in_swarm = refusal(engine.facts()) is None
                if in_swarm:
                    Cluster(engine).dismiss_agents(run)  # no orchestrator will
            failed = code not in (0, ORPHANED)
            if failed or not settings.standing:
                return code


def sweep(*, data: bool = False) -> int:
    """Remove what a run has left on this host, and the data sets if requested. Returns the exit code. HostError if in
    use."""
    with contextlib.closing(Engine.connect()) as engine:
        remove(engine, os.environ[LEFT_BY])
        if data:
            with plain_words("removing the data sets"), contextlib.suppress(NotFound):
                volume = engine.client.volumes.get(VOLUME)
                volume.remove()
    return 0


def run_of(container: str, settings: Settings) -> str | None:
    """The run that an agent has served, by the name of its container; None if it was left running and no run
    started."""
    run = container.removesuffix(name_of(""))
    if settings.standing and run == settings.run:
        return None
    return run


def remove(engine: Engine, run: str) -> None:
    """Remove what a run, or agents that were left running, have on this host. HostError if something stays."""
    with plain_words(f"removing the agent of {run}"):
        containers = engine.client.containers
        agents = containers.list(all=True, filters={"label": AGENT}, ignore_removed=True)
        for container in agents:
            of_run = container.labels[AGENT] == run or container.name == name_of(run)
            if not of_run:
                continue
            with unless_gone(), plain_words(f"removing {container.name}"):
                container.remove(force=True)
    with plain_words(f"looking for the volume of {run}"), contextlib.suppress(NotFound):
        volume = engine.client.volumes.get(run)
        folder = Path(volume.attrs["Mountpoint"])
        inside = [node for node in engine.containers() if folder in node.directory.parents]
        left = engine.remove(inside)
        volume.remove(force=True)
        _refuse_leftovers(left)
    left = engine.remove(engine.containers(run))
    _refuse_leftovers(left)


def _refuse_leftovers(left: Sequence[NodeContainer]) -> None:
    if not left:
        return
    names = ", ".join(container.node for container in left)
    raise HostError(f"the containers of {names} could not be removed")


def _hold(engine: Engine, settings: Settings, line: bytes) -> tuple[int, str | None]:
    """Start the container and wait for its end. Returns its exit code, and the run that it has served, if any."""
    remove(engine, settings.run)
    volumes = engine.client.volumes
    with plain_words("making the volume of the run"):
        volume = volumes.create(settings.run, labels={RUN: settings.run})
        folder = str(volume.attrs["Mountpoint"])
        kept = volumes.create(VOLUME, labels={VOLUME_LABEL: ""})
        datasets = str(kept.attrs["Mountpoint"])
    options = _options(settings.run, folder, datasets)
    container = engine.create(os.environ[IMAGE], ["work"], options)
    with plain_words("starting the agent"), contextlib.closing(engine.hold(container)) as held:
        container.start()
        held._sock.sendall(line + b"\n")
        result = container.wait()
    code = int(result["StatusCode"])
    with unless_gone(), plain_words("looking for the run of the agent"):
        container.reload()
    return code, run_of(str(container.name), settings)


def _options(run: str, folder: str, datasets: str) -> dict[str, Any]:
    read_only = dict(SENSOR_FOLDERS)
    if HANDLERS.is_dir():  # a kernel need not emulate
        read_only[HANDLERS] = HANDLERS_HERE
    mounts = []
    for path in (str(SOCKET), folder, datasets):
        mounts.append(Mount(path, path, type="bind"))
    for source, target in read_only.items():
        mount = Mount(str(target), str(source), type="bind", read_only=True)
        mounts.append(mount)
    environment = {HOST: os.environ[HOST], FOLDER: folder, DATASETS: datasets}
    limits = {"max-size": "1m", "max-file": "1"}
    return {
        "name": name_of(run),
        "labels": {AGENT: run},
        "entrypoint": [sys.executable, "-m", "orchestrator.agent"],
        "environment": environment,
        "user": "0:0",
        "network_mode": "host",  # the trunk's socket belongs there
        "pid_mode": "host",  # it enters the namespaces of nodes
        "cap_add": [*RIGHTS],
        "security_opt": ["apparmor=unconfined"],
        "mounts": mounts,
        "stdin_open": True,
        "healthcheck": {"test": ["NONE"]},
        "log_config": LogConfig(type=LogConfig.types.JSON, config=limits),
    }
