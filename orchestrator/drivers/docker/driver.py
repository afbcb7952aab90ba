"""The driver for images. Every node is a container of the Docker Engine, made from the image that is to be deployed.

A container has only loopback; the fabric attaches data0 to the network namespace of its first process. The other things
that it needs of the host are mounted (`files`), including the control plane's socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from docker.models.containers import Container

from node.assignment import PLACE
from orchestrator.drivers.base import SIGNALLED, Exit
from orchestrator.drivers.docker import node_image
from orchestrator.drivers.docker.container import COMMAND, Limits, options, trial_options
from orchestrator.drivers.docker.emulation import HANDLERS, emulated
from orchestrator.drivers.docker.engine import Engine, Stream, plain_words, unless_gone
from orchestrator.drivers.docker.memory_watch import MemoryWatch
from orchestrator.drivers.docker.mounts import lay_out, sees
from orchestrator.drivers.output import copy_output
from orchestrator.drivers.user import User
from orchestrator.errors import DriverError, HostError
from orchestrator.fabric.base import NodeHandle
from orchestrator.host.docker_socket import NODE
from orchestrator.host.training_devices import notes, refusals, trial_results
from orchestrator.planning.plan import Accelerated, NodePlan
from orchestrator.record.directory import RunDirectory
from orchestrator.text import some
from orchestrator.together import Tasks

LAST_WORDS = 2.0  # s after a node's end for its last output
OOM_NOTICE = 1.5  # s after the end of a killed container for the Engine's event that it was out of memory
EVENTS = ("die", "died", "oom")  # Podman filters by "died", and then names the event "die"
KILLED = SIGNALLED + signal.SIGKILL
UNFIT_MODES = {"rootless": "without root", "userns": "with remapped users (userns-remap)"}


class DockerDriver:
    """See `Driver` for the methods. The SDK blocks, so its calls are made in threads.

    ``data`` is the folder of the prepared data. ``images`` are the images that the scenario gives to some nodes. All
    other nodes are made from the run's image, ``image``, by default that of `node_image.image_name`. ``handlers``:
    where the kernel's handlers of programs are visible, see `emulated`. ``accelerated``: the nodes that train on
    accelerators.
    """

    name = "docker"
    breakdown = "the Docker Engine; see its own log"

    def __init__(
        self,
        engine: Engine,
        directory: RunDirectory,
        data: Path,
        images: Iterable[str] = (),
        image: str | None = None,
        handlers: Path = HANDLERS,
        accelerated: Iterable[Accelerated] = (),
    ) -> None:
        self.exits: asyncio.Queue[Exit] = asyncio.Queue()
        self.lost = asyncio.Event()
        self._engine = engine
        self._directory = directory
        self._data = data
        self.image = image or node_image.image_name()
        self._images = set(images)
        self._handlers = handlers
        self._accelerated = list(accelerated)
        self._runtimes: list[str] = []
        self._limits = Limits()
        self._users: dict[str, User] = {}  # by image
        self._notes: list[str] = []
        self._events: Stream[dict[str, Any]] | None = None
        self._closing = False
        self._starting = Tasks()
        self._threads: list[threading.Thread] = []
        self._started: Counter[str] = Counter()
        self._containers: dict[str, Container] = {}  # by node: its latest container, while that exists
        self._processes: dict[str, tuple[str, int]] = {}  # by container: its node and process
        self._early: dict[str, int] = {}  # exit codes of containers; their processes are not known yet
        self._out_of_memory: set[str] = set()  # nodes, since their latest start
        self._killed: set[str] = set()  # nodes that this driver has killed, since their latest start
        self._memory = MemoryWatch(self._out_of_memory_at)
        self._unexplained: dict[str, tuple[str, int]] = {}  # by container: node and exit code, for `OOM_NOTICE`

    async def open(self) -> None:
        """Check the Engine and the images, and start to receive the events of containers."""
        facts = await asyncio.to_thread(self._engine.facts)
        release = os.uname().release
        error = unfit(facts, release)
        if error is not None:
            raise error
        self._limits = Limits.of(facts)
        self._notes += self._limits.notes()
        self._runtimes = sorted(facts.get("Runtimes") or ())
        await self._admit_images(facts["Architecture"])
        for accelerated in self._accelerated:
            await asyncio.to_thread(self._try_accelerator, accelerated)
        run = self._directory.run
        self._events = await asyncio.to_thread(self._engine.events, run, EVENTS)
        loop = asyncio.get_running_loop()
        self._spawn(self._listen, self._events, loop)

    async def start(self, node: NodePlan, assignment: Path, log: Path) -> NodeHandle:
        self._started[node.name] += 1
        self._out_of_memory.discard(node.name)
        self._killed.discard(node.name)
        incarnation = self._started[node.name]
        starting = asyncio.to_thread(self._start, node, incarnation, assignment, log)
        work = self._starting.start(starting)
        pid, container = await asyncio.shield(work)  # a thread cannot be cancelled, so `close` waits for it
        name = str(container.id)
        self._containers[node.name] = container
        self._processes[name] = (node.name, pid)
        self._memory.watch(name, node.name, pid)
        code = self._early.pop(name, None)
        if code is not None:
            self._ended(name, code)
        return NodeHandle(pid)

    async def kill(self, node: str) -> None:
        self._killed.add(node)
        container = self._find(node)
        await asyncio.to_thread(self._signal, container, "SIGKILL")

    async def pause(self, node: str) -> None:
        with plain_words(f"pausing {node}"):
            await asyncio.to_thread(self._find(node).pause)

    async def resume(self, node: str) -> None:
        """Thaw the container. A pending SIGCONT shows its process that it was frozen. The Engine freezes by cgroup,
        which sends no signal. A signal sent through the Engine would thaw the container."""
        container = self._find(node)
        with unless_gone(), plain_words(f"resuming {node}"):
            with contextlib.suppress(ProcessLookupError):  # it was killed before
                _, pid = self._processes[str(container.id)]
                os.kill(pid, signal.SIGCONT)
            await asyncio.to_thread(container.unpause)

    def notes(self) -> list[str]:
        return list(self._notes)

    async def close(self) -> None:
        """Remove the run's containers. If the Engine is gone, `sweep` ends their processes by label instead."""
        self._closing = True
        await asyncio.gather(*self._starting.running, return_exceptions=True)
        try:
            if not self.lost.is_set():
                await asyncio.to_thread(self._remove_all)
        finally:
            if self._events is not None:
                self._events.cancel()
            self._memory.close()
            for thread in self._threads:
                await asyncio.to_thread(thread.join, LAST_WORDS)
            await asyncio.to_thread(self._engine.close)

    async def _admit_images(self, machine: str) -> None:
        """Check the images that nodes are made from. HostError if one does not fit, see `node_image.problem`."""
        version = importlib.metadata.version("edgebed")
        further = self._images - {self.image}
        for name in [self.image, *sorted(further)]:
            image = await asyncio.to_thread(self._engine.image, name)
            if name == self.image:
                foreign = None
            else:
                foreign = emulated(self._handlers)
            error = node_image.problem(name, image, machine, foreign)
            if error is not None:
                raise error
            assert image is not None
            own_uid = os.geteuid()
            own_gid = os.getegid()
            uid, gid = node_image.user_of(image, own_uid, own_gid)
            self._users[name] = User(uid, gid)
            for note in (
                node_image.version_note(name, image, version),
                node_image.emulation_note(name, image, machine),
            ):
                if note is not None:
                    self._notes.append(note)

    # In threads

    def _try_accelerator(self, requested: Accelerated) -> None:
        """Try in a container whether nodes can train on an accelerator. HostError if they cannot."""
        image = requested.image or self.image
        devices = {requested.device: requested.nodes}
        user = self._users[image]
        arguments = trial_options(
            self._directory.run,
            self._directory.path,
            user,
            self._runtimes,
        )
        command = ["--try", requested.device]
        try:
            output, errors = self._engine.tried(image, command, arguments)
        except DriverError as error:
            raise HostError(
                f"{some(requested.nodes)} cannot train on {requested.device}: {error}",
                "install NVIDIA's container toolkit on the Engine's host (`edgebed docs accelerators`), or train on the"
                " processor: compute.device: cpu",
            ) from None
        results = trial_results(output, errors)
        for refusal in refusals(devices, results):
            raise refusal
        self._notes += notes(devices, results)

    def _start(
        self,
        node: NodePlan,
        incarnation: int,
        assignment: Path,
        log: Path,
    ) -> tuple[int, Container]:
        container = self._make(node, incarnation, assignment)
        with plain_words(f"starting {node.name}"):
            output = self._engine.output(container)
            copier = self._spawn(copy_output, output, log)
            container.start()
        pid = self._pid_of(container)
        if pid == 0:
            copier.join(LAST_WORDS)
            return 0, container
        is_own = is_process_of(pid, str(container.id))
        if not is_own and self._pid_of(container) == pid:
            raise HostError(
                f"the Docker Engine says that {node.name} is process {pid}, which is another one here: the orchestrator"
                " must run on the Engine's host, and not in a container"
            )
        inside, here = self._witness(assignment)
        if not sees(pid, inside, here):
            raise HostError(
                "the Docker Engine does not see the files of this run: its file system is not that of this host",
                "use an Engine that runs directly on this host, or a folder of runs that both see (--runs)",
            )
        return pid, container

    def _witness(self, assignment: Path) -> tuple[Path, Path]:
        """A file that a node's container sees, and the same on this host."""
        return PLACE / "assignment.json", assignment

    def _make(self, node: NodePlan, incarnation: int, assignment: Path) -> Container:
        image = node.image or self.image
        user = self._users[image]
        group = self._users[self.image].gid
        mounts = lay_out(
            self._directory,
            node.name,
            assignment,
            self._data,
            user,
            group,
        )
        arguments = options(
            node,
            self._directory.run,
            self._directory.path,
            incarnation,
            user,
            mounts,
            self._limits,
            self._runtimes,
        )
        arguments["group_add"] = [group]
        return self._engine.create(image, COMMAND, arguments)

    def _pid_of(self, container: Container) -> int:
        """The container's process; 0 if it has ended."""
        with unless_gone(), plain_words(f"looking for {container.name}"):
            container.reload()
            state = container.attrs["State"]
            return int(state["Pid"])
        return 0

    def _signal(self, container: Container, name: str) -> None:
        with unless_gone(), plain_words(f"sending {name} to {container.name}"):
            container.kill(signal=name)

    def _remove_all(self) -> None:
        containers = self._engine.containers(self._directory.run)
        left = self._engine.remove(containers)
        if left:
            names = ", ".join(container.node for container in left)
            raise DriverError(f"the Docker Engine did not remove the containers of {names}: `down` tries again")

    def _listen(self, events: Stream[dict[str, Any]], loop: asyncio.AbstractEventLoop) -> None:
        for event in events:
            loop.call_soon_threadsafe(self._handle_event, event)
        if not self._closing:
            loop.call_soon_threadsafe(self.lost.set)

    def _spawn(self, function: Any, *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        thread.start()
        alive = [other for other in self._threads if other.is_alive()]
        self._threads = [*alive, thread]
        return thread

    # Events of the Engine

    def _handle_event(self, event: Mapping[str, Any]) -> None:
        actor = event["Actor"]
        container = actor["ID"]
        attributes = actor["Attributes"]
        node = attributes[NODE]
        if event["Action"] == "oom":
            self._out_of_memory_at(node)
            return
        self._memory.look(container)
        code = int(attributes["exitCode"])
        explained = node in self._out_of_memory or node in self._killed
        if code == KILLED and not explained:
            self._unexplained[container] = (node, code)
            loop = asyncio.get_running_loop()
            loop.call_later(OOM_NOTICE, self._explained, container)
        else:
            self._ended(container, code)

    def _out_of_memory_at(self, node: str) -> None:
        self._out_of_memory.add(node)
        for container, (name, _) in list(self._unexplained.items()):
            if name == node:
                self._explained(container)

    def _explained(self, container: str) -> None:
        """Report the end of a killed container: the Engine may send ``oom`` after ``die``."""
        if container in self._unexplained:
            _, code = self._unexplained.pop(container)
            self._ended(container, code)

    def _ended(self, container: str, code: int) -> None:
        if container not in self._processes:
            self._early[container] = code
            return
        node, pid = self._processes.pop(container)
        latest = str(self._containers[node].id)
        if latest == container:
            del self._containers[node]
        handle = NodeHandle(pid)
        out_of_memory = code != 0 and node in self._out_of_memory
        end = Exit(node, handle, exit_code(code), out_of_memory)
        self.exits.put_nowait(end)

    def _find(self, node: str) -> Container:
        if node not in self._containers:
            raise DriverError(f"{node} has no running container")
        return self._containers[node]


def exit_code(code: int) -> int:
    """The exit code of a container as `Exit` has it: negative after a signal."""
    if code > SIGNALLED:
        return SIGNALLED - code
    return code


def unfit(facts: Mapping[str, Any], release: str) -> HostError | None:
    """Why containers of this Engine cannot be nodes; None if they can. ``release`` is that of this host's kernel."""
    kernel = facts["KernelVersion"]
    if facts["OSType"] != "linux" or kernel != release:
        return HostError(
            f"the Docker Engine runs on another kernel ({kernel}) than this host ({release}), so that"
            " nodes could not be attached to their links",
            "use this host's own Engine, not one in a virtual machine",
        )
    security = " ".join(facts.get("SecurityOptions") or ())
    for name, mode in UNFIT_MODES.items():
        if f"name={name}" in security:
            return HostError(
                f"the Docker Engine runs {mode}, so that nodes could not use their files",
                "use the ordinary Engine",
            )
    return None


def is_process_of(pid: int, container: str) -> bool:
    """Whether a process of this host belongs to a container: the names of its cgroups then have the container's id."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text()
        return container in groups
    except OSError:
        return False
