"""The runs on this host, and their nodes. Labels show the processes, the record has the states of nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from node.resources import proportional_bytes
from orchestrator.drivers.docker import leftovers
from orchestrator.errors import RecordError
from orchestrator.host.process import processes
from orchestrator.record.directory import RunDirectory
from orchestrator.results.history import History
from orchestrator.run.down import traces


def running_runs(runs: Path) -> list[dict[str, Any]]:
    """One entry per run: ``run``, ``directory``, ``phase`` ("orphaned" if its orchestrator is gone), ``nodes`` with
    their proportional set size ``pss`` in bytes. A node of an orphaned run that has no process is "gone", whatever
    the record says last."""
    return [_describe(run, directory) for run, directory in sorted(traces(runs).items())]


def _describe(run: str, directory: RunDirectory | None) -> dict[str, Any]:
    pids = _processes(run)
    if directory is not None and directory.holder() is not None:
        phase = "running"
    else:
        phase = "orphaned"
    states = _states(directory)
    if not states:
        states = {name: "unknown" for name in pids}
    if phase == "orphaned":
        states = {name: state if name in pids else "gone" for name, state in states.items()}
    nodes = [
        {
            "node": name,
            "state": state,
            "pid": pid,
            "pss": None if pid is None else proportional_bytes(Path(f"/proc/{pid}")),
        }
        for name, state, pid in ((name, state, pids.get(name)) for name, state in states.items())
    ]
    return {"run": run, "directory": str(directory.path) if directory else None, "phase": phase, "nodes": nodes}


def _processes(run: str) -> dict[str, int]:
    """The process id of each node that has a process. The Engine knows a container's process, whose name is its
    program's. Other processes have the names of their nodes."""
    boxed = leftovers.listed(run)
    inside = {each.node: each.pid for each in boxed if each.pid is not None}
    found = {each.command: each.pid for each in processes.run_processes(run) if each.part == "node"}
    return inside or found


def _states(directory: RunDirectory | None) -> dict[str, str]:
    if directory is None:
        return {}
    try:
        with History.open(directory.path) as history:
            return {name: state.state for name, state in history.current_states().items()}
    except RecordError:
        return {}
