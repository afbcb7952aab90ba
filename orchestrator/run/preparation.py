"""Before a run: what this host must have for it, what its directory holds, and the clock that it runs on."""

from __future__ import annotations

import asyncio
import json
import math
import os
import resource
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from node.algorithms.registry import PROGRAMS
from node.assignment import PluginSource
from node.catalogue.models import MODEL_GROUPS
from node.plugins import digest
from node.runtime.clock import VirtualLoop, run_virtual
from orchestrator import text
from orchestrator.drivers.base import entry_of
from orchestrator.errors import HostError, RunError
from orchestrator.planning.copies.trace_files import keep_files
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory
from orchestrator.record.writer import Record
from orchestrator.run.options import Origin
from orchestrator.scenario.schema import effective
from orchestrator.scenario.sections.drivers import DriverKind

FILES = 64  # open files of a process by itself, with a reserve: at most 40 were counted
T = TypeVar("T")


def begin(directory: RunDirectory, plan: Plan, origin: Origin) -> Record:
    """Write the shards, the scenario and the plan into the directory. RunError or RecordError if there is no room."""
    file = origin.file
    facts = {
        "scenario": str(file),
        "folder": str(file.parent.absolute()),
        "overrides": list(origin.overrides),
        "effective": effective(origin.scenario),
        **origin.meta,
    }
    try:
        plan.shards.write(directory.shards)
        if origin.text is None:
            content = file.read_bytes()
        else:
            content = origin.text.encode()
        directory.scenario.write_bytes(content)
    except OSError as error:
        raise RunError(
            f"cannot make the run's directory {directory.path}: {error.strerror}; make room, or choose --runs"
        ) from None
    planned = plan.to_json()
    keep_files(planned, file.parent, directory.path, origin.files)
    keep_plugins(plan.plugins, directory.plugins)
    plan_text = json.dumps(planned, indent=1) + "\n"
    return Record.create(directory.path, plan_text, facts)


def on_clock(driver: DriverKind, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work`` on the clock of a driver."""
    if driver.simulated:
        return run_virtual(work, VirtualLoop())
    return asyncio.run(work)


def keep_plugins(sources: Iterable[PluginSource], folder: Path) -> None:
    """Copy the Python files of the plug-ins into ``folder``. RunError if one has changed since the plan was made."""
    folder.mkdir(mode=0o755, exist_ok=True)
    for source in sources:
        try:
            contents = source.contents()
            if digest(contents) != source.sha256:
                raise RunError(f"plug-in {source.name} was changed after the scenario was read: start again")
            for path, content in contents.items():
                place = folder / path
                place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                place.write_bytes(content)
                place.chmod(0o644)
        except OSError as error:
            raise RunError(f"plug-in {source.name} cannot be kept in {folder}: {error}; is it still there?") from None


def require(plan: Plan, workers: int) -> None:
    """Check this host for a plan. HostError names everything that this host lacks for the plan's driver, or says that
    it has too little memory, or that this process may not open as many files as the run needs."""
    entry = entry_of(plan.driver_kind)
    missing = entry.missing(plan)
    if len(missing) == 1:
        raise missing[0]
    if missing:
        sentences = [str(error) for error in missing]
        raise HostError("\n".join(sentences))
    require_room(plan, workers)


def require_room(plan: Plan, workers: int = 1) -> None:
    """HostError if this host has less memory than nodes and the models of a round take, or allows too few open
    files."""
    kind = plan.driver_kind
    clients = models_of_a_round(plan)
    nodes = 0
    if kind.node_bytes and plan.algorithm:
        nodes = len(plan.nodes)
    if not kind.several_hosts:
        needed = nodes * kind.node_bytes + clients * plan.model_bytes
        _require_memory(needed, nodes, clients)
    provide(open_files(plan, workers))


def _require_memory(needed: int, nodes: int, clients: int) -> None:
    memory = host_memory()
    if needed <= memory:
        return
    what = f"{text.count(nodes, 'node')} and the models" if nodes else "the models"
    raise HostError(
        f"{what} of {text.count(clients, 'client')} in a round take at least {text.size(needed)}, and this host has"
        f" {text.size(memory)} of memory: take fewer clients, a smaller model or a host with more memory"
    )


def open_files(plan: Plan, workers: int) -> int:
    """The most files that one process of a run has open: the orchestrator, the switch, or a node with many peers. A
    container has its output, a control connection and a request to the Engine; a peer a connection each way, the
    gate's view, and ZeroMQ's own signalling."""
    if plan.driver_kind.simulated:
        return FILES + 4 * workers
    of_nodes = 4 * len(plan.nodes)
    of_programs = 2 * len(plan.programs)
    of_hosts = 4 * len(plan.hosts)
    return FILES + of_nodes + of_programs + of_hosts


def models_of_a_round(plan: Plan) -> int:
    """How many copies of the model exist when a round ends: one of each client that answers. The least number where
    that varies; 0 for programs, for models that differ, and for algorithms without rounds of clients."""
    algorithm = plan.scheme
    if algorithm is PROGRAMS or algorithm.asynchronous or plan.model in MODEL_GROUPS:
        return 0
    if plan.population is not None:
        return plan.population.selected
    clients = sum(node.samples > 0 for node in plan.nodes)
    participation = float(plan.params.get("participation", 1.0))
    return math.ceil(clients * participation)


def host_memory() -> int:
    """The memory of this host in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def provide(files: int) -> None:
    """Let this process and its children have this number of files open. Every user may raise the soft limit up to the
    hard limit (getrlimit(2)). HostError if the hard limit is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != hard < files:
        raise HostError(
            f"the run needs {files} open files in one process, and this shell allows {hard}:"
            f" `ulimit -n {files}` as root, or start from another shell"
        )
    if resource.RLIM_INFINITY != soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
