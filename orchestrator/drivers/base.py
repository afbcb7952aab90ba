"""The protocols of a driver, and of the module that `orchestrator.scenario.sections.drivers` names for it.

A driver makes a node's process in its own namespaces, and reports when the process ends. A power that not every driver
has is a separate protocol. A scenario that needs a power that its driver lacks is refused before anything starts.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

from netem.units import format_size
from node.assignment import Assignment
from orchestrator import text
from orchestrator.errors import HostError
from orchestrator.fabric.base import Fabric, NodeHandle
from orchestrator.fabric.hosts_network import HostsNetwork
from orchestrator.fabric.link_prober import Prober
from orchestrator.host.kernel.usage import ProcessUsage
from orchestrator.host.sensors.sensor import Reading
from orchestrator.host.trial import Trial
from orchestrator.planning.hosts.inventory import Inventory
from orchestrator.planning.plan import NodePlan, Plan
from orchestrator.planning.programs import ProgramPlan
from orchestrator.record.directory import RunDirectory
from orchestrator.scenario.catalogue import installed_drivers
from orchestrator.scenario.sections.drivers import DriverKind

if TYPE_CHECKING:
    from rich.console import Console

SIGNALLED = 128  # where an exit code cannot be negative, a code above this one means a signal
OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True)
class Exit:
    """The end of a node's process: with exit code ``code``, or by a signal (then ``code`` is the negative number).
    ``out_of_memory``: the kernel killed it, or a program of it, because it needed more memory than its limit."""

    node: str
    handle: NodeHandle
    code: int
    out_of_memory: bool = False

    def how(self, limit: int | None) -> str:
        """How the process ended, in words. ``limit``: its node's memory in bytes; None: not limited."""
        if not self.out_of_memory:
            return text.how_ended(self.code)
        if limit is None:
            return f"{OUT_OF_MEMORY}: its host has no more"
        return f"{OUT_OF_MEMORY}: its limit is {format_size(limit)}"


class Driver(Protocol):
    """Starts and ends the processes of nodes. ``exits`` delivers the end of each process. ``lost`` is set when the
    driver itself breaks down; ``breakdown`` then says what broke and where to look."""

    name: str
    breakdown: str
    exits: asyncio.Queue[Exit]
    lost: asyncio.Event

    async def open(self) -> None:
        """Prepare to start nodes. HostError with the remedy if this host cannot run them."""

    async def start(self, node: NodePlan, assignment: Path, log: Path) -> NodeHandle:
        """Start a node in its own network namespace. A node that ends immediately also counts as started. Its Exit
        never comes before the handle is returned."""

    async def kill(self, node: str) -> None:
        """Send SIGKILL to a node. Its Exit follows."""

    def notes(self) -> list[str]:
        """The settings that this driver cannot honour on this host, in words for the record."""

    async def close(self) -> None:
        """End every remaining node and release the resources of ``open``."""


@runtime_checkable
class CanPause(Protocol):
    """The power to freeze a node's process and to continue it."""

    async def pause(self, node: str) -> None: ...
    async def resume(self, node: str) -> None: ...


class HostChange(NamedTuple):
    """A host is "lost", "back", or "unusable": available, but of no use. ``reason`` is empty for one that is back."""

    host: str
    state: Literal["lost", "back", "unusable"]
    reason: str = ""


class NodeMove(NamedTuple):
    """A node of a lost host starts on ``target`` from now on; None: on no other host. ``checkpoint``: the age in
    seconds of the checkpoint from which it starts; None without one."""

    node: str
    source: str
    target: str | None
    reason: str
    checkpoint: float | None = None


class HostReadings(NamedTuple):
    """What sensors of a host show from now on; or since ``ago`` seconds."""

    host: str
    readings: list[Reading]
    ago: float = 0.0


@runtime_checkable
class UsesHosts(Protocol):
    """The power to run nodes on other hosts, which may be lost and come back. ``news`` delivers all that hosts report,
    in order. ``here``: whether nodes run on the orchestrator's host too."""

    news: asyncio.Queue[HostChange | NodeMove | HostReadings]
    here: bool

    async def ready(self, node: str) -> str | None:
        """Wait until a node of a lost host can start: on this host, or on another one. Returns why it cannot, None if
        it can."""

    async def forget(self, node: str) -> None:
        """Remove the assignment that was copied to a node's host. The node has read it, or has ended."""

    async def sense(self) -> None:
        """Read all sensors now. From the first call on those that have changed are also read once a second."""


@dataclass(frozen=True)
class ProgramEnd:
    """The end of a program: with exit code ``code``, or by a signal (then ``code`` is the negative number).
    ``out_of_memory``: as of `Exit`, for its node."""

    program: ProgramPlan
    code: int
    out_of_memory: bool = False


@runtime_checkable
class RunsPrograms(Protocol):
    """The power to run programs in a node that is held (`Driver.start`): in its network and under its limits. ``ends``
    delivers the end of each program, except when the whole node is killed."""

    ends: asyncio.Queue[ProgramEnd]

    async def run(self, program: ProgramPlan, log: Path) -> None:
        """Start a program. Its output is added to ``log``. HostError or DriverError if it cannot be started."""

    async def signal(self, program: ProgramPlan, number: int) -> None:
        """Send SIGTERM, SIGKILL, SIGSTOP or SIGCONT to a program. Does nothing if it has ended."""

    async def release(self, node: str, code: int = 0) -> None:
        """End a node and all its programs. Its Exit has this code."""

    async def listening_on(self, node: NodeHandle, port: int) -> list[str]:
        """The addresses on which programs of a node listen on a TCP port. None if the node has ended, or if its host is
        lost."""

    async def usage(self, nodes: Mapping[str, NodeHandle]) -> Mapping[str, ProcessUsage]:
        """What the processes of each node use, by its name. Nodes of hosts that do not answer are left out."""


@runtime_checkable
class ReportsOutput(Protocol):
    """The power to report that a program has printed. ``on_output`` is called with its label when the log has it."""

    on_output: Callable[[str], object]


@runtime_checkable
class Reassigns(Protocol):
    """The power of a driver that has the assignments of nodes itself, instead of files, to change them."""

    def after_move(self, device: str, edge: str) -> None:
        """Give later processes of a device, and of edges, the assignments after a move, see `Assignment.after_move`."""


@runtime_checkable
class ResolvesNames(Protocol):
    """The power to change what the names of nodes resolve to while nodes run."""

    async def resolve(self, names: Mapping[str, str]) -> None:
        """From now on, these are the IPv4 addresses of all nodes, by name."""


class Control(Protocol):
    """The orchestrator's side of the control plane."""

    def messages(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield each message with the name of its sender, forever."""

    async def send(self, node: str, message: Mapping[str, Any]) -> None:
        """Send a message to a node. A node that does not run misses it."""


@dataclass(frozen=True)
class Environment:
    """The environment of a run: the driver of its nodes, the fabric of their links, and the control plane. ``prober``
    measures links, or is None if links are simulated. ``assignments`` has the assignments that nodes read from a file.
    ``network`` is that between the hosts of the run, or None if no link crosses hosts."""

    driver: Driver
    fabric: Fabric
    control: Control
    prober: Prober | None = None
    assignments: Mapping[str, Assignment] = field(default_factory=dict)
    network: HostsNetwork | None = None


Tell = Callable[[str], object]


class DriverEntry(Protocol):
    """The module of a driver. Its import is fast, because its functions import what is slow to import."""

    def missing(self, plan: Plan | None = None) -> list[HostError]:
        """An error with the remedy for each thing that this host lacks for a plan, or without a plan for an algorithm;
        empty if a run can start. Makes nothing."""

    async def open_environment(
        self,
        plan: Plan,
        directory: RunDirectory,
        stack: AsyncExitStack,
        workers: int,
        tell: Tell,
    ) -> Environment:
        """Open the environment of a run; ``stack`` closes it in the reverse order. ``workers`` is the number of
        processes that train simulated nodes. ``tell`` receives what takes long, in words. HostError if this host cannot
        provide the environment."""


@runtime_checkable
class KnowsHosts(Protocol):
    """The power of a driver's module to list the hosts on which nodes can run."""

    def inventory(self) -> Inventory:
        """The hosts that are ready. HostError with the remedy if there are none."""


class Trace(NamedTuple):
    """What a run has left, or still has, outside the processes and cgroups with its labels. ``directory``: that of the
    run, as it was when the run started. ``pid``: the first process of a container of this ``node``."""

    run: str
    directory: Path
    node: str = ""
    pid: int | None = None


@dataclass(frozen=True)
class LeftRun:
    """A run that is to leave nothing. ``directory``: None if it is gone. What its record says: its ``driver``, ""
    without a record; the ``hosts`` of its plan; whether its nodes were containers, and its orchestrator was killed
    before it had an outcome."""

    run: str
    directory: RunDirectory | None
    driver: str = ""
    hosts: tuple[str, ...] = ()
    killed_with_containers: bool = False


@dataclass(frozen=True)
class Removal:
    """What was removed of a run: its agents on these ``hosts``, and the ``containers`` of these nodes. ``left``: what
    could not be removed, in words."""

    hosts: Sequence[str] = ()
    containers: Sequence[str] = ()
    left: Sequence[str] = ()


@runtime_checkable
class LeavesTraces(Protocol):
    """The power of a driver's module to find and remove what runs leave if their orchestrator is killed, in addition to
    labelled processes and cgroups. It is asked on every host and after every run, so it is fast where there is nothing.
    Drivers are asked from the last of the catalogue: one that builds on another comes after it, and ends its agents
    before the other removes what they make."""

    def traces(self, run: str | None = None) -> Sequence[Trace]:
        """The traces of one run, or of all runs; empty if what shows them is not available."""

    def remove(self, run: LeftRun) -> Removal:
        """End and remove what the run has left on this host, and its agents on others."""


@runtime_checkable
class LeavesOnHosts(Protocol):
    """The power of a driver's module to remove what a run may have left on hosts that were away when it ended."""

    def known_hosts(self) -> Sequence[str]:
        """The hosts on which a run may have left something, whatever their state; empty if there are none."""

    def sweep(self, run: LeftRun) -> Mapping[str, str]:
        """Remove what the run may have left on its hosts, or without its directory on all. Returns the hosts that were
        not reached, with the reasons."""


@runtime_checkable
class EntersNodes(Protocol):
    """The power of a driver's module to run commands in nodes that do not belong to the run's processes."""

    def enter(
        self,
        run: str,
        node: str,
        planned: Mapping[str, object],
        *,
        terminal: bool,
    ) -> list[str]:
        """The argv prefix that runs a command in a node of a running run. ``planned``: the node's part of the plan.
        ``terminal``: the command gets a terminal. RunError if the node does not run on this host, HostError if this
        host lacks something for it."""


@runtime_checkable
class TriesHost(Protocol):
    """The power of a driver's module to try what this host has for it, for `doctor`. A signal ends `doctor`, so this
    uses no thread."""

    def trials(self) -> Sequence[Trial]:
        """The results, in the order of the report. What only this driver needs is optional."""


@runtime_checkable
class KnowsJob(Protocol):
    """The power of a driver's module to describe the job of a batch system that this process belongs to. Only
    administrators can change the hosts of a job."""

    def job(self) -> Sequence[Trial]:
        """The job, and its hosts; empty outside a job."""


class ImageBuild(NamedTuple):
    """The command that builds an ``image``, such as "nodes", in a folder of `edgebed image`. ``purpose``: which runs
    need it."""

    image: str
    command: str
    purpose: str


@runtime_checkable
class NeedsImage(Protocol):
    """The power of a driver's module to name the image that `edgebed image` is to prepare for it."""

    def image_build(self) -> ImageBuild: ...


def entries() -> list[DriverEntry]:
    """The entries of all drivers: edgebed's in the order of the catalogue, then those of installed plug-ins."""
    return [entry_of(kind) for kind in installed_drivers().values()]


def image_builds() -> list[ImageBuild]:
    """How the images of all drivers are built."""
    return [entry.image_build() for entry in entries() if isinstance(entry, NeedsImage)]


class UnknownHostError(ValueError):
    """A requested host is none of the driver's."""


class HostsResult(Protocol):
    """The result of a command about hosts. ``complete``: whether it has no finding that needs attention."""

    @property
    def complete(self) -> bool: ...
    def to_json(self) -> dict[str, Any]: ...
    def show(self, console: Console) -> None:
        """Write it for people, in the width of this console."""


class Hosting(Protocol):
    """The module of a driver with the commands of `edgebed hosts`. HostError with the remedy if this host manages no
    hosts. Its import is fast."""

    def list_hosts(self) -> HostsResult:
        """The hosts, and what each offers to runs."""

    def examine_hosts(self, names: Sequence[str], tell: Tell) -> HostsResult:
        """What the hosts of these names lack for runs, by default all. UnknownHostError for an unknown name."""

    def leave_agents(self, tell: Tell) -> HostsResult:
        """Start an agent on each host, so that runs start sooner."""

    def end_agents(self, *, data: bool) -> HostsResult:
        """End these agents. ``data``: also remove the data sets that the hosts keep."""


def hosting() -> Hosting:
    """The commands about hosts of the first driver that has them."""
    module = next(kind.hosting for kind in installed_drivers().values() if kind.hosting)
    return cast(Hosting, importlib.import_module(module))


def entry_of(kind: DriverKind) -> DriverEntry:
    """The entry of a driver."""
    module = importlib.import_module(kind.module)
    return cast(DriverEntry, module)
