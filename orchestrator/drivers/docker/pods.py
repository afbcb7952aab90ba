"""The docker driver of a run with programs in its nodes, each in a container of any image.

The containers of a node share the network namespace and the processes of a first container, its holder. The fabric
attaches the holder to the node's links before any program starts.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from docker.models.containers import Container
from docker.types import LogConfig, Mount

from orchestrator.drivers.base import ProgramEnd
from orchestrator.drivers.docker import holder
from orchestrator.drivers.docker.driver import DockerDriver, exit_code
from orchestrator.drivers.docker.engine import Engine, plain_words, unless_gone
from orchestrator.drivers.docker.mounts import remove_rights
from orchestrator.drivers.docker.node_image import ARCHITECTURES
from orchestrator.drivers.output import copy_output
from orchestrator.drivers.surroundings import NodesHere, write_hosts
from orchestrator.errors import DriverError, HostError
from orchestrator.fabric.base import NodeHandle
from orchestrator.host.docker_socket import DIRECTORY, NODE, RUN
from orchestrator.host.process.processes import labels
from orchestrator.planning.plan import NodePlan
from orchestrator.planning.programs import ProgramPlan
from orchestrator.record.directory import RunDirectory
from orchestrator.scenario.sections.hardware import HardwareClass

SCENARIO = "/scenario"  # where each program finds the folder of the scenario, and where it starts
FILES = "/files"  # where each program finds the folder of its node, the only one of the host that it can write to
HOLDER = "/.edgebed/holder"
HOSTS = "/etc/hosts"


class _Running(NamedTuple):
    program: ProgramPlan
    container: Container
    copier: threading.Thread
    pid: int


class PodsDriver(NodesHere, DockerDriver):
    """See `Driver`, `CanPause` and `RunsPrograms`. ``programs``: of all nodes that may run here. ``images``: of those
    that do. ``names``: IPv4 addresses that resolve in nodes. ``folder``: of the scenario. ``notes``: for the record."""

    def __init__(
        self,
        engine: Engine,
        directory: RunDirectory,
        programs: Sequence[ProgramPlan],
        images: Iterable[str],
        names: Mapping[str, str],
        folder: Path,
        notes: Iterable[str] = (),
    ) -> None:
        super().__init__(engine, directory, Path(), images)
        self.ends: asyncio.Queue[ProgramEnd] = asyncio.Queue()
        self._programs = programs
        self._folder = folder
        self._hardware: dict[str, HardwareClass] = {}  # of each node that was started
        self._running: dict[str, _Running] = {}  # by container
        self._runs: Counter[str] = Counter()  # starts of each program
        self._codes: dict[str, int] = {}  # of nodes that are released
        self._inputs: dict[str, Any] = {}  # of each node's holder, which ends with its input
        self._notes += notes
        self._hosts = directory.nodes / "hosts"
        write_hosts(self._hosts, names)
        holder.write(directory.nodes / "holder")

    async def start(self, node: NodePlan, assignment: Path, log: Path) -> NodeHandle:
        self._hardware[node.name] = node.hardware
        return await super().start(node, assignment, log)

    async def run(self, program: ProgramPlan, log: Path) -> None:
        held = self._find(program.node)
        starting = asyncio.to_thread(self._start_program, program, held, log)
        work = self._starting.start(starting)
        started = await asyncio.shield(work)  # as a node's: `close` waits for the thread
        name = str(started.container.id)
        self._running[name] = started
        self._memory.watch(name, program.node, started.pid)
        code = self._early.pop(name, None)
        if code is not None:
            self._ended(name, code)

    async def signal(self, program: ProgramPlan, number: int) -> None:
        for running in self._of(program.node):
            if running.program == program:
                await asyncio.to_thread(self._signal_program, running.container, number)

    def _signal_program(self, container: Container, number: int) -> None:
        """Stop or continue all processes of a container, or send a signal to its first one."""
        with unless_gone(), plain_words(f"stopping or continuing {container.name}"):
            if number == signal.SIGSTOP:
                container.pause()
            elif number == signal.SIGCONT:
                container.unpause()
            else:
                name = signal.Signals(number).name
                self._signal(container, name)

    async def release(self, node: str, code: int = 0) -> None:
        self._codes[node] = code
        await self.kill(node)

    async def kill(self, node: str) -> None:
        """Kill the holder. The kernel ends the other processes of its PID namespace with it."""
        held = self._find(node)
        self._killed.add(node)
        for running in self._of(node):
            container = str(running.container.id)
            del self._running[container]
        await asyncio.to_thread(self._signal, held, "SIGKILL")

    async def pause(self, node: str) -> None:
        self._find(node)
        for running in self._of(node):
            with unless_gone(), plain_words(f"pausing {node}"):
                await asyncio.to_thread(running.container.pause)

    async def resume(self, node: str) -> None:
        self._find(node)
        for running in self._of(node):
            with unless_gone(), plain_words(f"resuming {node}"):
                await asyncio.to_thread(running.container.unpause)

    async def close(self) -> None:
        await super().close()
        for stdin in self._inputs.values():
            stdin.close()
        for node in {program.node for program in self._programs}:
            folder = self._directory.checkpoints_of(node)
            await asyncio.to_thread(remove_rights, folder)

    def _of(self, node: str) -> list[_Running]:
        programs = []
        for running in self._running.values():
            if running.program.node == node:
                programs.append(running)
        return programs

    async def _admit_images(self, machine: str) -> None:
        """Check that the Engine has the programs' images, for this host's processor. HostError with the remedy."""
        architecture = ARCHITECTURES.get(machine, machine)
        for name in sorted(self._images):
            image = await asyncio.to_thread(self._engine.image, name)
            if image is None:
                raise HostError(
                    f"the Docker Engine has no image '{name}'",
                    "fetch or build it",
                    [f"docker pull {name}"],
                )
            if image["Architecture"] != architecture:
                raise HostError(f"the image '{name}' is for {image['Architecture']}, this host is {machine}")

    # In threads

    def _make(self, node: NodePlan, incarnation: int, assignment: Path) -> Container:
        """The holder of a node, in the image of its first program."""
        programs = [program for program in self._programs if program.node == node.name]
        image = str(programs[0].image)
        holder_file = _mount(self._directory.nodes / "holder", HOLDER)
        hosts_file = _mount(self._hosts, HOSTS)
        name = f"{self._directory.run}-{node.name}-{incarnation}"
        options = self._common(node.name, name) | {
            "entrypoint": [HOLDER],
            "hostname": node.name,
            "user": "65534:65534",
            "network_mode": "none",  # the fabric attaches data0
            "mounts": [holder_file, hosts_file],
            "read_only": True,
            "stdin_open": True,
            "cap_drop": ["ALL"],
        }
        container = self._engine.create(image, [], options)
        self._inputs[node.name] = self._engine.hold(container)
        return container

    def _start_program(self, program: ProgramPlan, held: Container, log: Path) -> _Running:
        directory = self._directory
        hardware = self._hardware[program.node]
        as_quota = replace(hardware, cores=hardware.quota)
        limits = self._limits.of_hardware(as_quota)
        self._runs[program.label] += 1
        number = self._runs[program.label]
        name = f"{directory.run}-{program.label}-{number}-program"
        placed = program.with_files(FILES)
        files = directory.checkpoints_of(program.node)
        files.mkdir(exist_ok=True)
        files.parent.chmod(0o700)  # no other user of this host reaches what follows, or what programs leave in it
        files.chmod(0o777)  # the image decides as whom its program runs
        of_run = labels(directory.run, directory.path, "node")
        environment = dict(placed.environment) | of_run
        options = self._common(program.node, name) | {
            "entrypoint": [],
            "environment": environment,
            "network_mode": f"container:{held.id}",
            "pid_mode": f"container:{held.id}",
            "mounts": [
                _mount(self._folder, SCENARIO),
                _mount(files, FILES, read_only=False),
                _mount(self._hosts, HOSTS),
            ],
            "working_dir": SCENARIO,
            **limits,
        }
        image = str(program.image)
        command = list(placed.command)
        try:
            container = self._engine.create(image, command, options)
            with plain_words(f"starting {program.label}"):
                output = self._engine.output(container)
                copier = self._spawn(copy_output, output, log)
                container.start()
        except DriverError as error:
            if not self._runs_on(held):
                raise
            raise HostError(f"it cannot be started ({error})") from None
        pid = self._pid_of(container)
        return _Running(program, container, copier, pid)

    def _runs_on(self, held: Container) -> bool:
        """Whether a holder still runs."""
        for container in self._engine.containers(self._directory.run):
            if container.id == held.id and container.pid:
                return True
        return False

    def _witness(self, assignment: Path) -> tuple[Path, Path]:
        return Path(HOLDER), self._directory.nodes / "holder"

    def _common(self, node: str, name: str) -> dict[str, Any]:
        directory = self._directory
        of_run = {RUN: directory.run, NODE: node, DIRECTORY: str(directory.path)}
        return {
            "name": name,
            "labels": of_run,
            "security_opt": ["no-new-privileges:true"],
            "auto_remove": True,  # no container remains, even if the orchestrator has ended
            "log_config": LogConfig(type=LogConfig.types.NONE),  # the driver itself copies the output
            "healthcheck": {"test": ["NONE"]},
        }

    # Events of the Engine

    def _ended(self, container: str, code: int) -> None:
        if container in self._running:
            running = self._running.pop(container)
            ending = self._program_ended(running, code)
            asyncio.get_running_loop().create_task(ending)
            return
        node, _ = self._processes.get(container, ("", 0))
        code = self._codes.pop(node, code)
        super()._ended(container, code)

    async def _program_ended(self, running: _Running, code: int) -> None:
        await asyncio.to_thread(running.copier.join)  # its last output comes first
        program = running.program
        out_of_memory = code != 0 and program.node in self._out_of_memory
        end = ProgramEnd(program, exit_code(code), out_of_memory)
        self.ends.put_nowait(end)


def _mount(source: Path, target: str, *, read_only: bool = True) -> Mount:
    return Mount(
        target=target,
        source=str(source.absolute()),
        type="bind",
        read_only=read_only,
    )
