"""What the page does to a running run: manual faults, and the pace of a simulation.

The requests go to the run's own socket, like those of `inject` and `pace`. It accepts only the user who started the
run, so the page must be served by a process of that user. The record shows that a request came from the page.
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

Requested = Mapping[str, Any]
Reply = dict[str, Any]


def make_fault(directory: RunDirectory, requested: Requested, client: str) -> Reply:
    """Make the fault ``requested["fault"]`` for the address ``client``. Returns the orchestrator's reply, also in
    words. MistakeError if the fault makes no sense, RunError if the run refuses it."""
    running = require_running(directory)
    parameters = {"fault": requested.get("fault"), "via": via(client)}
    reply = command(running, "inject", parameters)
    return {**reply, "told": in_words(reply)}


def set_pace(directory: RunDirectory, requested: Requested, client: str) -> Reply:
    """Set the pace of a simulation to ``requested["to"]``. For a step, waits for the round. Errors as in
    `make_fault`."""
    try:
        speed_of(str(requested.get("to")))
    except ValueError as error:
        raise MistakeError(str(error)) from None
    running = require_running(directory)
    return command(running, "pace", {"to": str(requested["to"])})


def reads_only(directory: RunDirectory, *, acts: bool) -> str | None:
    """Why the page can only read this run; None if it can act on the run while it continues."""
    if not acts:
        return "this page is for reading: `serve --faults` makes one that can make faults"
    if directory.is_ours:
        return None
    return f"{directory.run} is a run of another user: only its user may act"


def via(client: str) -> str:
    """The name in the record of a page that is open at an address."""
    try:
        is_local = ipaddress.ip_address(client).is_loopback
    except ValueError:
        is_local = False
    if is_local:
        return "the page"
    return f"the page, from {client}"


Operation = Callable[[RunDirectory, Requested, str], Reply]

OPERATIONS: Mapping[str, Operation] = {
    "inject": make_fault,
    "pace": set_pace,
}
