"""Take a run down in whatever state it is, from a process that knows only the run's id."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator import text
from orchestrator.drivers.base import LeavesAgents, entry_of
from orchestrator.drivers.docker import leftovers
from orchestrator.drivers.swarm import leftovers as agents
from orchestrator.errors import HostError, RecordError, RunError
from orchestrator.fabric.namespaces.anchor import remove
from orchestrator.host.kernel import cgroups
from orchestrator.host.process import processes
from orchestrator.record.directory import RunDirectory, is_run, paths_in
from orchestrator.results.history import History
from orchestrator.scenario.sections.drivers import kind_of

ORDERLY = 20.0  # s for a running orchestrator to end its run by itself
CGROUP_PATIENCE = 5.0
TRACKERS_PATIENCE = 10.0  # s for trackers to write what a run left to write


@dataclass
class Removed:
    """The traces of one run that `down` found, removed, or could not remove (``left``)."""

    run: str
    stopped: bool = False  # its running orchestrator ended the run in order
    hosts: list[str] = field(default_factory=list)  # of a swarm, with agents that were ended
    containers: list[str] = field(default_factory=list)
    processes: list[str] = field(default_factory=list)
    cgroups: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def anything(self) -> bool:
        if self.stopped:
            return True
        return bool(self.hosts or self.containers or self.processes or self.cgroups)

    def describe(self) -> str:
        """The result in one line."""
        if self.left:
            return f"{self.run}: could not remove {', '.join(self.left)}"
        if not self.anything:
            return f"{self.run}: nothing of it is left on this host"
        parts = []
        if self.stopped:
            parts.append("ended in order")
        if self.hosts:
            parts.append(f"ended its agents on {', '.join(self.hosts)}")
        if self.containers:
            parts.append(f"removed {text.count(len(self.containers), 'container')}")
        if self.processes:
            number = len(self.processes)
            parts.append(f"ended {number} process" if number == 1 else f"ended {number} processes")
        if self.cgroups:
            parts.append(f"removed {text.count(len(self.cgroups), 'cgroup')}")
        return f"{self.run}: {', '.join(parts)}; nothing of it is left on this host"


def down(run: str, directory: RunDirectory | None) -> Removed:
    """End a run: in order if its orchestrator runs, otherwise by its labels. Safe to repeat. A run with a removed
    directory may have left something on each host of the swarm. RunError if the directory belongs to another user."""
    stopped = False
    if directory is not None:
        if not directory.is_ours:
            others = "belongs to another user, or others may write to it"
            raise RunError(f"{directory.path} {others}: `down` it as its user")
        if _signal_holder(directory, signal.SIGTERM):
            stopped = _wait_released(directory, ORDERLY)
            if not stopped and _signal_holder(directory, signal.SIGKILL):
                _wait_released(directory, 5.0)
    result = clear(run, directory, stopped=stopped)
    hosts: Sequence[str] = []
    if directory is not None:
        hosts = _hosts(directory)
    elif result.hosts or not result.anything:
        hosts = agents.hosts()
    if hosts and not result.left:
        folder = Path() if directory is None else directory.path
        away = agents.sweep(run, folder, hosts)
        for host, reason in sorted(away.items()):
            result.left.append(f"what it may have left on the host {host} ({reason})")
    if directory is not None:
        holder = directory.holder()
        if holder is not None:
            result.left.append(f"process {holder}, which holds {directory.lock}")
    return result


def _signal_holder(directory: RunDirectory, number: signal.Signals) -> bool:
    """Send a signal to the orchestrator that holds a directory, if there is one."""
    holder = directory.holder()
    if holder is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(holder)
        try:
            if directory.is_held_by(holder):
                signal.pidfd_send_signal(descriptor, number)
                return True
        finally:
            os.close(descriptor)
    return False


def clear(
    run: str,
    directory: RunDirectory | None,
    *,
    stopped: bool = False,
    trackers: bool = True,
) -> Removed:
    """Remove everything of a run without an orchestrator. ``trackers``: also those that do not end themselves."""
    result = Removed(run, stopped)
    result.hosts, away = agents.stop_agents(run)
    for host in away:
        result.left.append(f"what runs on the host {host}: its agent does not answer")
    if directory is not None:
        _stop_agents(run, directory, result)
    _remove_containers(run, directory, result)
    everything = processes.run_processes(run)
    ended = [process for process in everything if process.part != processes.TRACKER]
    left = processes.end(ended)
    if trackers:
        following = [process for process in everything if process.part == processes.TRACKER]
        left += processes.end(following, patience=TRACKERS_PATIENCE)
    result.processes = [f"{process.part} {process.command} ({process.pid})" for process in ended]
    result.left += [f"process {process.pid} ({process.command})" for process in left]
    result.cgroups = [str(group) for group in cgroups.left_behind(run)]
    remaining = remove(result.cgroups, CGROUP_PATIENCE)
    result.left += [f"cgroup {group}" for group in remaining]
    if directory is not None:
        directory.remove_keys()
    return result


def _stop_agents(run: str, directory: RunDirectory, result: Removed) -> None:
    """End the agents that the driver of the run leaves."""
    with contextlib.suppress(RecordError, KeyError):  # a damaged record may name no driver
        with History.open(directory.path) as history:
            entry = entry_of(history.driver)
        if isinstance(entry, LeavesAgents):
            try:
                result.hosts += entry.stop_agents(run)
            except HostError as error:
                result.left.append(f"its agents ({error})")


def _remove_containers(run: str, directory: RunDirectory | None, result: Removed) -> None:
    with leftovers.engine() as engine:
        if engine is not None:
            containers = engine.containers(run)
            result.containers = [container.node for container in containers]
            remaining = engine.remove(containers)
            result.left += [f"container of {container.node}" for container in remaining]
        elif directory is not None and _had_containers(directory):
            result.left.append("containers: the Docker Engine, which lists them, is not running")


def _had_containers(directory: RunDirectory) -> bool:
    """Whether a run may have left containers: it ended without an outcome, for example when it was killed."""
    try:
        with History.open(directory.path) as history:
            has_images = kind_of(history.driver).images
            return has_images and history.outcome is None
    except RecordError:
        return False


def _hosts(directory: RunDirectory) -> list[str]:
    """The hosts of a swarm that a run was on."""
    with contextlib.suppress(RecordError), History.open(directory.path) as history:
        if kind_of(history.driver).images:  # other agents keep all in this directory
            hosts = history.plan.get("hosts", [])
            return [host["name"] for host in hosts]
    return []


def _wait_released(directory: RunDirectory, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while directory.holder() is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def traces(runs: Path) -> dict[str, RunDirectory | None]:
    """Every run of this user that has a trace on this host: a running orchestrator, a process, a container, a cgroup,
    or the secret keys of a run below ``runs`` with a killed orchestrator."""
    directories: dict[str, RunDirectory | None] = {}
    labelled = []
    for process in processes.run_processes():
        labelled.append((process.run, process.directory))
    for container in leftovers.listed():
        labelled.append((container.run, container.directory))
    labelled += agents.runs().items()
    for run, path in labelled:
        if not os.path.exists(path) or RunDirectory(path).is_ours:
            directories[run] = _known(path)
    for group in cgroups.left_behind():
        run = group.name.removeprefix(cgroups.PREFIX)
        path = (runs / run).resolve()
        directories.setdefault(run, _known(path))
    for path in paths_in(runs):
        directory = RunDirectory(path.resolve())
        if directory.is_ours and _has_traces(directory):
            directories[directory.run] = directory
    return directories


def _has_traces(directory: RunDirectory) -> bool:
    """Whether the orchestrator of a run holds its directory, or was killed and has left the keys of the nodes."""
    if not directory.lock.exists():
        return False
    return directory.nodes.exists() or bool(directory.holder())


def _known(path: Path) -> RunDirectory | None:
    """The directory of a run, which has no record yet when it starts."""
    directory = RunDirectory(path)
    if is_run(path) or directory.holder() is not None:
        return directory
    return None
