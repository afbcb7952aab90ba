"""The command line that runs a command inside a node: in its namespaces, or in its container.

Processes and containers are found by their labels, so any process of the run's user can enter its nodes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from orchestrator.drivers.base import EntersNodes, entry_of
from orchestrator.errors import RunError
from orchestrator.host.kernel import namespaces
from orchestrator.host.process import processes
from orchestrator.record.directory import RunDirectory
from orchestrator.results.history import History
from orchestrator.scenario.catalogue import installed_drivers
from orchestrator.scenario.sections.topology import unknown_node

ALL = ("--mount", "--uts", "--ipc", "--net", "--pid")
"""Every namespace of a node, except its user namespace. A command there ends with the node, as in a container."""

HOME = "/"
"""The home of a command in a node that sees its own files: no file that a node can write is then read by a shell."""


def entry(
    directory: RunDirectory,
    node: str,
    *,
    terminal: bool = False,
) -> tuple[list[str], dict[str, str]]:
    """The argv prefix that runs a command inside a node of a running run, and the variables that the command needs.
    ``terminal``: the command gets a terminal. RunError if the node cannot be entered, with the reason."""
    with History.open(directory.path) as history:
        driver = history.driver
        planned = history.nodes
        programs = bool(history.plan.get("programs"))
        states = history.current_states()
    run = directory.run
    if node not in planned:
        raise RunError(f"run {run}: {unknown_node(node, planned)}")
    kind = installed_drivers().get(driver)  # a damaged record may name no driver
    if kind is not None and kind.simulated:
        raise RunError(
            f"{node} is simulated: it has no network and no processes of its own; use another driver, like namespaces"
        )
    if directory.holder() is None:
        raise RunError(f"run {run} is over: only the nodes of a running run can be entered")
    if kind is not None:
        of_driver = entry_of(kind)
        if isinstance(of_driver, EntersNodes):
            prefix = of_driver.enter(run, node, planned[node], terminal=terminal)
            return prefix, {}
    if not directory.is_ours:
        raise RunError(f"run {run} belongs to another user: only that user can enter its nodes")
    entered = namespace_entry(run, node)
    if entered is None:
        state = states[node].state if node in states else "not started"
        raise RunError(f"{node} has no process (it is {state})")
    if programs:
        return entered, {}
    return entered, {"HOME": HOME}


def namespace_entry(
    run: str,
    node: str,
    kinds: Sequence[str] = ALL,
) -> list[str] | None:
    """The argv prefix that enters the namespaces of a node. None if it has no process."""
    command = node[:15]  # the kernel keeps 15 characters of a process's name, see name_process
    nodes = []
    hubs = []
    for process in processes.run_processes(run):
        if process.part == "node" and process.command == command:
            nodes.append(process.pid)
        elif process.part == "hub":
            hubs.append(process.pid)
    if not nodes or not hubs:
        return None
    hub = None if os.geteuid() == 0 else hubs[0]
    return namespaces.entry(min(nodes), kinds, hub)
