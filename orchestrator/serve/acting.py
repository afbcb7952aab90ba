"""What the page does to a run that goes on: faults by hand, and the pace of a simulation.

The run's own socket hears it, as it hears `inject` and `pace`: only the user who started the run is heard, whose
process serves the page. The record says that the page asked.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.errors import MistakeError
from orchestrator.record.directory import RunDirectory
from orchestrator.run.control.pace import speed_of
from orchestrator.verbs.live.inject import command, in_words, require_running

LONGEST = 16 * 1024  # bytes of a request


def make_fault(directory: RunDirectory, requested: Mapping[str, Any], client: str) -> dict[str, Any]:
    """Make the fault ``asked["fault"]`` for the address ``client``. Returns the orchestrator's reply, also in words.
    MistakeError if the fault makes no sense, RunError if the run refuses it."""
    reply = command(require_running(directory), "inject", {"fault": requested.get("fault"), "via": via(client)})
    return {**reply, "told": in_words(reply)}


def set_pace(directory: RunDirectory, requested: Mapping[str, Any], client: str) -> dict[str, Any]:
    """Set the pace of a simulation to ``asked["to"]``. For a step, waits for the round. Errors as in `make_fault`."""
    try:
        speed_of(str(requested.get("to")))
    except ValueError as error:
        raise MistakeError(str(error)) from None
    return command(require_running(directory), "pace", {"to": str(requested["to"])})


def reads_only(directory: RunDirectory, *, acts: bool) -> str | None:
    """Why the page can only read this run; None if it can act on the run while it goes on."""
    if not acts:
        return "this page is for reading: `serve --faults` makes one that can make faults"
    return None if directory.is_ours else f"{directory.run} is a run of another user: only its user may act"


def via(client: str) -> str:
    """What the record calls the page that asks from an address."""
    try:
        here = ipaddress.ip_address(client).is_loopback
    except ValueError:
        here = False
    return "the page" if here else f"the page, from {client}"


OPERATIONS: Mapping[str, Callable[[RunDirectory, Mapping[str, Any], str], dict[str, Any]]] = {
    "inject": make_fault,
    "pace": set_pace,
}
