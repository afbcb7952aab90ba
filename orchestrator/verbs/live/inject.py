"""Commands to a running orchestrator: which run is meant, what is asked, and what its orchestrator answers."""

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


def fault_of(action: str, targets: Sequence[str], keys: Mapping[str, object]) -> dict[str, Any]:
    """The fault as a scenario writes it, without a time. ValueError if the targets do not fit the action. ``keys`` are
    its other ones; that of ``for`` is ``for_``."""
    if "medium" in keys and not targets:
        whom = {}
    else:
        whom = _target(action, targets)
    return {"action": action, **whom, **{key.rstrip("_"): value for key, value in keys.items()}}


def _target(action: str, targets: Sequence[str]) -> dict[str, Any]:
    if action == "partition" or (action == "degrade" and len(targets) == 2):
        if len(targets) != 2:
            raise ValueError("partition: name both sides, like edge-0 cloud; commas join the nodes of one side")
        return {"between": [side.split(",") if "," in side else side for side in targets]}
    if not targets:
        raise ValueError(f"{action}: name a node, several nodes, or devices or edges with --count")
    if len(targets) == 1:
        return {"of" if targets[0] in GROUPS else "node": targets[0]}
    return {"nodes": list(targets)}


def chosen(name: str | None, runs: Path) -> RunDirectory:
    """The run of this name, which must be this user's and running; without a name, the only running one."""
    if name is not None:
        return require_running(find_run(name, runs))
    found = running(runs)
    if not found:
        raise RunError(f"no run of yours is running in {runs}: start one with `up SCENARIO`, or name a run with --run")
    if len(found) > 1:
        raise RunError(f"several runs are running, name one with --run: {', '.join(each.run for each in found)}")
    return found[0]


def require_running(directory: RunDirectory) -> RunDirectory:
    """The run, which must be this user's and running. RunError otherwise."""
    if not directory.is_ours:
        raise RunError(f"{directory.run} is a run of another user, or others may write to it: only its user may act")
    if directory.holder() is None:
        raise RunError(f"{directory.run} is over: nothing can be done to it any more")
    return directory


def running(runs: Path) -> list[RunDirectory]:
    """This user's runs below ``runs`` that are running. Others are meant by name only."""
    return [each for each in known_runs(runs) if each.is_ours and each.holder()]


def command(directory: RunDirectory, op: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The orchestrator's reply. MistakeError if the command makes no sense, RunError if nobody replies."""
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
        raise MistakeError(str(reply["error"]).removeprefix(f"{op}: "))
    return {"run": directory.run, **{key: value for key, value in reply.items() if key != "ok"}}


def in_words(reply: Mapping[str, Any]) -> list[str]:
    """What took effect and when, and what did not and why."""
    lines = []
    for each in reply["faults"]:
        round = f", round {each['round']}" if each["round"] else ""
        lasts = f", for {format_duration(each['for'])}" if each["for"] else ""
        what = f"fault {each['fault']}: {each['action']} {each['target']}"
        lines.append(f"{what} took effect at {each['at']:g} s of training{round}{lasts}")
    lines += [f"note: {note}" for note in reply["notes"]]
    return lines
