"""The runs on this host, and their nodes. Labels show the processes, the record has the states of nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from node.resources import proportional_bytes
from orchestrator.drivers.base import LeavesTraces, entries
from orchestrator.errors import RecordError
from orchestrator.host.process import processes
from orchestrator.record.directory import RunDirectory
from orchestrator.results.history import History
from orchestrator.run.down import traces


def running_runs(runs: Path) -> list[dict[str, Any]]:
    """One entry per run: ``run``, ``directory``, ``phase`` ("orphaned" if its orchestrator is gone), ``nodes`` with
    their proportional set size ``pss`` in bytes. A node of an orphaned run that has no process is "gone", whatever
    the record says last."""
    directories = sorted(traces(runs).items())
    return [_describe(run, directory) for run, directory in directories]


def _describe(run: str, directory: RunDirectory | None) -> dict[str, Any]:
    pids = _processes(run)
    if directory is not None and directory.holder() is not None:
        phase = "running"
    else:
        phase = "orphaned"
    states = _states(directory)
    if not states:
        states = dict.fromkeys(pids, "unknown")
    nodes = []
    for name, state in states.items():
        pid = pids.get(name)
        if phase == "orphaned" and pid is None:
            state = "gone"
        pss = None if pid is None else proportional_bytes(Path(f"/proc/{pid}"))
        nodes.append({"node": name, "state": state, "pid": pid, "pss": pss})
    return {
        "run": run,
        "directory": str(directory.path) if directory else None,
        "phase": phase,
        "nodes": nodes,
    }


def _processes(run: str) -> dict[str, int]:
    """The process id of each node that has a process. A driver reports a container's process, which has the name of its
    program. Other processes have the names of their nodes."""
    of_containers = {}
    for entry in entries():
        if not isinstance(entry, LeavesTraces):
            continue
        for trace in entry.traces(run):
            if trace.pid is not None:
                of_containers[trace.node] = trace.pid
    of_nodes = {}
    for process in processes.run_processes(run):
        if process.part == "node":
            of_nodes[process.command] = process.pid
    return of_containers or of_nodes


def _states(directory: RunDirectory | None) -> dict[str, str]:
    if directory is None:
        return {}
    try:
        with History.open(directory.path) as history:
            states = history.current_states()
            return {name: state.state for name, state in states.items()}
    except RecordError:
        return {}
