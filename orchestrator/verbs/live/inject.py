"""Commands to a running orchestrator: the choice of the run, the request, and the reply of its orchestrator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from netem.units import format_duration
from orchestrator.errors import MistakeError, RunError
from orchestrator.host.process import user_socket
from orchestrator.record.directory import RunDirectory, find_run, known_runs

GROUPS = ("devices", "edges")
NEW = "its nodes are still being started, or it is ending"


def fault_of(
    action: str,
    targets: Sequence[str],
    keys: Mapping[str, object],
) -> dict[str, Any]:
    """The fault as a scenario writes it, without a time. ValueError if the targets do not fit the action. ``keys`` are
    its other ones; that of ``for`` is ``for_``."""
    fault: dict[str, Any] = {"action": action}
    if targets or "medium" not in keys:
        fault |= _target(action, targets)
    for key, value in keys.items():
        fault[key.rstrip("_")] = value
    return fault


def _target(action: str, targets: Sequence[str]) -> dict[str, Any]:
    if action == "partition" or (action == "degrade" and len(targets) == 2):
        if len(targets) != 2:
            raise ValueError("partition: name both sides, like edge-0 cloud; commas join the nodes of one side")
        return {"between": [_side(target) for target in targets]}
    if not targets:
        raise ValueError(f"{action}: name a node, several nodes, or devices or edges with --count")
    if len(targets) > 1:
        return {"nodes": list(targets)}
    if targets[0] in GROUPS:
        return {"of": targets[0]}
    return {"node": targets[0]}


def _side(target: str) -> str | list[str]:
    """The node, or the nodes joined by commas, on one side of a partition."""
    if "," in target:
        return target.split(",")
    return target


def chosen(name: str | None, runs: Path) -> RunDirectory:
    """The run of this name, which must be this user's and running; without a name, the only running one."""
    if name is not None:
        return require_running(find_run(name, runs))
    directories = running(runs)
    if not directories:
        raise RunError(f"no run of yours is running in {runs}: start one with `up SCENARIO`, or name a run with --run")
    if len(directories) > 1:
        names = ", ".join(directory.run for directory in directories)
        raise RunError(f"several runs are running, name one with --run: {names}")
    return directories[0]


def require_running(directory: RunDirectory) -> RunDirectory:
    """The run, which must be this user's and running. RunError otherwise."""
    if not directory.is_ours:
        raise RunError(f"{directory.run} is a run of another user, or others may write to it: only its user may act")
    if directory.holder() is None:
        raise RunError(f"{directory.run} is over: nothing can be done to it any more")
    return directory


def running(runs: Path) -> list[RunDirectory]:
    """This user's runs below ``runs`` that are running. Others are meant by name only."""
    directories = []
    for directory in known_runs(runs):
        if directory.is_ours and directory.holder():
            directories.append(directory)
    return directories


def command(
    directory: RunDirectory,
    op: str,
    arguments: Mapping[str, Any],
) -> dict[str, Any]:
    """The orchestrator's reply. MistakeError if the command makes no sense, RunError if there is no reply."""
    try:
        reply = user_socket.ask(directory.commands, {"op": op, **arguments})
    except PermissionError:
        raise RunError(f"{directory.run} is a run of another user: only its user may act") from None
    except (FileNotFoundError, ConnectionRefusedError):
        raise RunError(f"{directory.run} takes no commands now: {NEW}") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{directory.run} gave no answer: {error}") from None
    if reply is None:
        raise RunError(f"{directory.run} ended before it answered")
    if "error" in reply:
        reason = str(reply["error"])
        raise MistakeError(reason.removeprefix(f"{op}: "))
    details = {key: value for key, value in reply.items() if key != "ok"}
    return {"run": directory.run, **details}


def in_words(reply: Mapping[str, Any]) -> list[str]:
    """What took effect and when, and what did not and why."""
    lines = [_fault_in_words(fault) for fault in reply["faults"]]
    lines += [f"note: {note}" for note in reply["notes"]]
    return lines


def _fault_in_words(fault: Mapping[str, Any]) -> str:
    what = f"fault {fault['fault']}: {fault['action']} {fault['target']}"
    when = f"{fault['at']:g} s of training"
    if fault["round"]:
        when += f", round {fault['round']}"
    if fault["for"]:
        when += f", for {format_duration(fault['for'])}"
    return f"{what} took effect at {when}"
