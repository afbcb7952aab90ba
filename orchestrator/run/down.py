"""Take a run down in whatever state it is, from a process that knows only the run's id."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator import text
from orchestrator.drivers.base import LeavesOnHosts, LeavesTraces, LeftRun, entries
from orchestrator.errors import RecordError, RunError
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
    hosts: list[str] = field(default_factory=list)  # with agents that were ended
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
    directory may have left something on each host that a driver knows. RunError if the directory belongs to another
    user."""
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
    may_be_on_hosts = directory is not None or bool(result.hosts) or not result.anything
    if may_be_on_hosts and not result.left:
        left_run = _left_run(run, directory)
        for host, reason in sorted(_sweep_hosts(left_run).items()):
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
    left_run = _left_run(run, directory)
    for entry in reversed(entries()):
        if isinstance(entry, LeavesTraces):
            removal = entry.remove(left_run)
            result.hosts += removal.hosts
            result.containers += removal.containers
            result.left += removal.left
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


def _left_run(run: str, directory: RunDirectory | None) -> LeftRun:
    """The run for drivers. Without a readable record nothing is known of it but its directory."""
    if directory is None:
        return LeftRun(run, None)
    try:
        with History.open(directory.path) as history:
            driver = history.driver
            hosts = tuple(host["name"] for host in history.plan.get("hosts", ()))
            killed_with_containers = history.outcome is None and kind_of(driver).images
            return LeftRun(run, directory, driver, hosts, killed_with_containers)
    except RecordError:
        return LeftRun(run, directory)


def _sweep_hosts(run: LeftRun) -> dict[str, str]:
    """Remove what a run may have left on other hosts. Returns the hosts that were not reached, with the reasons."""
    away: dict[str, str] = {}
    for entry in entries():
        if isinstance(entry, LeavesOnHosts):
            away |= entry.sweep(run)
    return away


def known_hosts() -> list[str]:
    """The other hosts on which runs may have left something."""
    hosts: list[str] = []
    for entry in entries():
        if isinstance(entry, LeavesOnHosts):
            hosts += entry.known_hosts()
    return hosts


def _wait_released(directory: RunDirectory, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while directory.holder() is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def traces(runs: Path) -> dict[str, RunDirectory | None]:
    """Every run of this user that has a trace on this host: a running orchestrator, a process, a cgroup, what a
    driver finds, or the secret keys of a run below ``runs`` with a killed orchestrator."""
    directories: dict[str, RunDirectory | None] = {}
    labelled = []
    for process in processes.run_processes():
        labelled.append((process.run, process.directory))
    for entry in entries():
        if isinstance(entry, LeavesTraces):
            labelled += [(trace.run, trace.directory) for trace in entry.traces()]
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
