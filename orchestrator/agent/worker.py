"""What an agent does for a run on its host: it answers `orchestrator.drivers.hosts.agents.calls`, and sends events:

exit {node, pid, code, out_of_memory}   a node's container has ended
program {label, code, out_of_memory}    a program of a node has ended
log {log, data}                 bytes that were added to the log of this name
checkpoint {node, data, first, last}    a piece of a node's new checkpoint
relay {connection, data}        see orchestrator.drivers.hosts.agents.relay
sensors {readings}              what has changed: quantity, source, scope, value and detail of each reading
broken {error}                  the driver or the links of this host have failed; the agent ends, and starts again
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from node.errors import WireError
from orchestrator.agent.datasets import DataSets
from orchestrator.agent.echoes import EchoResponder, ask
from orchestrator.agent.files import Files, inside
from orchestrator.agent.host_run import HostRun
from orchestrator.agent.images import Images
from orchestrator.agent.log_stream import CheckpointStream, LogStream
from orchestrator.agent.responders import Responders
from orchestrator.drivers.base import Driver, RunsPrograms
from orchestrator.drivers.hosts.agents import calls
from orchestrator.drivers.hosts.agents.calls import ExaminationSetup, HostEngine, HostSetup
from orchestrator.drivers.hosts.agents.delivery import Message
from orchestrator.drivers.hosts.agents.facts import HostState
from orchestrator.drivers.hosts.agents.relay import NodesEnd
from orchestrator.errors import DriverError, OrchestratorError
from orchestrator.fabric.base import Fabric
from orchestrator.fabric.link_prober import Prober
from orchestrator.fabric.trunk import Carrier
from orchestrator.host.sensors.sensing import Sensing
from orchestrator.host.sensors.sensor import Reading, Sensor
from orchestrator.host.sensors.sources import discover
from orchestrator.record.directory import RunDirectory
from orchestrator.together import Tasks

logger = logging.getLogger(__name__)

LOOK_EVERY = 0.2  # s between looks at the logs

Tell = Callable[..., None]
T = TypeVar("T")


Open = Callable[[HostSetup, RunDirectory, Path, AsyncExitStack], Awaitable[HostRun]]
"""Opens the run on this host, with its directory and the folder of its data set."""

Examine = Callable[[ExaminationSetup, Path, AsyncExitStack], Awaitable[tuple[HostState, int, Prober]]]
"""Examines the host, with a folder for its files. Returns the facts, a process in the hub, and a prober."""


class Worker:
    """One run on one host, see `orchestrator.drivers.hosts.agents.calls.Host`. Everything lies in ``folder``. ``over``
    is set when the agent is to end: this host has failed, or the orchestrator lets it go."""

    def __init__(
        self,
        folder: Path,
        tell: Tell,
        make: Open,
        examine: Examine,
        find: Callable[[], Sequence[Sensor]] = discover,
        images: Images | None = None,
        on_begin: Callable[[str], None] = lambda run: None,
        datasets: DataSets | None = None,
    ) -> None:
        """``find`` finds the sensors of this host. ``images`` are those of its Engine. ``on_begin`` is called in
        a thread with the run that starts here. ``datasets`` are those that this host keeps."""
        self._folder = folder
        self._tell = tell
        self._make = make
        self._examine = examine
        self._find = find
        self._on_begin = on_begin
        self._sensing: Sensing | None = None
        self._stack = AsyncExitStack()
        images = images or Images(folder)
        self._stack.push_async_callback(images.close)
        kept = datasets or DataSets(folder)
        self._datasets = kept
        self.over = asyncio.Event()
        self._directory: RunDirectory | None = None
        self._host_run: HostRun | None = None
        self._prober: Prober | None = None
        self._relay: NodesEnd | None = None
        self._output: LogStream | None = None
        self._checkpoints: CheckpointStream | None = None
        self._forwarding = asyncio.Lock()  # while new output and checkpoints are read
        self._echoes: EchoResponder | None = None
        self._responders = Responders(lambda: _opened(self._prober))
        self._targets: dict[str, Callable[[], object]] = {
            "Host": lambda: self,
            "HostFiles": Files,
            "HostDataSets": lambda: kept,
            "HostImages": lambda: images,
            "HostLinks": lambda: _opened(self._host_run),
            "HostResponders": lambda: self._responders,
            "Fabric": self._open_fabric,
            "KeepsNetworks": self._open_fabric,
            "SharesMedia": self._open_fabric,
            "Prober": lambda: _opened(self._prober),
            "Driver": self._open_driver,
            "CanPause": self._open_driver,
            "RunsPrograms": self._open_driver,
        }

    async def answer(self, call: str, arguments: Message) -> Any:
        """The result of a call. DriverError for one that is not possible here."""
        method = calls.METHODS.get(call)
        protocol, _, name = call.partition(".")
        if method is None:
            raise DriverError(f"no call '{call}': the agent has another version")
        target_of = self._targets[protocol]
        target = target_of()
        if not hasattr(target, name):
            raise DriverError(f"no call '{call}': a {type(target).__name__} is open here")
        try:
            values = calls.arguments_of(method, arguments)
        except WireError as error:
            raise DriverError(f"'{call}' has invalid arguments ({error}): the agent has another version") from None
        for argument, value in values.items():
            if isinstance(value, Path):
                values[argument] = inside(self._run.path, value)
        act = getattr(target, name)
        if not inspect.iscoroutinefunction(act):
            act = partial(asyncio.to_thread, act)
        return await act(**values)

    def notice(self, message: Message) -> None:
        """Take a notice of the orchestrator."""
        relayed = message["name"] == "relay"
        if relayed and self._relay is not None:
            self._relay.take(message["connection"], message["data"])

    async def close(self) -> None:
        """End everything that was made on this host, and remove the files of the run."""
        try:
            await self._stack.aclose()
        finally:
            await asyncio.to_thread(self._datasets.close)
            if self._directory is not None:
                await asyncio.to_thread(self._directory.remove)

    # The run

    async def begin(self, run: str) -> None:
        """Make the directory of the run."""
        await asyncio.to_thread(self._on_begin, run)
        path = self._folder / run
        self._directory = await asyncio.to_thread(_make_directory, path)

    async def open(self, data: str | None, setup: HostSetup) -> HostEngine:
        """Open driver, hub and links of this host. ``data``: the hash of the data set; programs have none."""
        directory = self._run

        def relay(number: int, data: bytes | None) -> None:
            self._tell("relay", connection=number, data=data)

        self._relay = NodesEnd(directory.socket, relay)
        self._stack.push_async_callback(self._relay.close)
        await self._relay.listen()
        self._output = LogStream(directory.logs)
        if data is not None:  # the files of programs are their own affair
            self._checkpoints = CheckpointStream(directory.checkpoints)
        reporters = Tasks()
        watchers = Tasks()
        # It ends after the nodes, so that it reports their exits.
        self._stack.push_async_callback(self._end_reporters, reporters)
        if data is None:
            prepared = Path()
        else:
            prepared = self._datasets.path(data)
        run = await self._make(setup, directory, prepared, self._stack)
        self._host_run = run
        self._prober = run.prober
        driver = run.driver
        reporters.start(self._report_exits(driver))
        reporters.start(self._forward_output_forever())
        if isinstance(driver, RunsPrograms):
            reporters.start(self._report_ends(driver))
        notes = driver.notes()
        watchers.start(self._report_breakdown(driver.lost, driver.breakdown))
        watchers.start(self._watch(run.fabric))
        if run.carrier is not None:
            watchers.start(self._watch(run.carrier))
            notes += run.carrier.notes()
        self._stack.push_async_callback(watchers.cancel)  # first: what ends in order has not failed
        return HostEngine(run.fabric.engine, run.fabric.tcp, notes)

    # The host

    async def facts(self, setup: ExaminationSetup) -> tuple[HostState, int]:
        """The facts of this host, and a process in its hub. From here on it can be probed without a run."""
        facts, hub, prober = await self._examine(setup, self._folder, self._stack)
        self._prober = prober
        return facts, hub

    # The network between the hosts

    async def listen(self, address: str) -> tuple[int, bytes]:
        """Answer echoes at an address of this host from now on. Returns the port and the token."""
        if self._echoes is None:
            self._echoes = EchoResponder(address)
            self._stack.push_async_callback(self._echoes.close)
        return self._echoes.port, self._echoes.token

    async def echo(
        self,
        address: str,
        port: int,
        token: bytes,
        count: int,
        spacing: float,
    ) -> list[float]:
        """See `orchestrator.agent.echoes.ask`."""
        return await ask(address, port, token, count, spacing)

    # The sensors

    async def sense(self) -> None:
        """Report what all sensors of this host show. From the first call on, changes are reported once a second."""
        if self._sensing is not None:
            await self._sensing.sense(everything=True)
            return
        self._sensing = Sensing(self._report_readings, logger.warning, self._find)
        await self._sensing.begin()
        tasks = Tasks()
        tasks.start(self._sense_forever(self._sensing))
        self._stack.push_async_callback(tasks.cancel)

    # The end

    async def finish(self) -> None:
        """End the nodes and the links. The last output is sent before this is answered."""
        await self._responders.dismiss_all()
        await self._stack.aclose()
        self._host_run = None
        self._prober = None
        await self._forward_output()

    async def leave(self) -> None:
        """End, and remove everything that was made here. The next agent of this host serves the next run."""
        self.over.set()

    # Helpers

    def _open_fabric(self) -> Fabric:
        return _opened(self._host_run).fabric

    def _open_driver(self) -> Driver:
        return _opened(self._host_run).driver

    @property
    def _run(self) -> RunDirectory:
        if self._directory is None:
            raise DriverError("no run has started here")
        return self._directory

    async def _sense_forever(self, sensing: Sensing) -> None:
        try:
            await sensing.forever()
        except Exception:
            logger.exception("the sensors are not read any more")

    def _report_readings(self, readings: Sequence[Reading]) -> None:
        if readings:
            self._tell("sensors", readings=readings)

    async def _report_exits(self, driver: Driver) -> None:
        while True:
            ended = await driver.exits.get()
            await self._forward_output()
            self._tell(
                "exit",
                out_of_memory=ended.out_of_memory,
                node=ended.node,
                pid=ended.handle.pid,
                code=ended.code,
            )

    async def _report_ends(self, driver: RunsPrograms) -> None:
        while True:
            ended = await driver.ends.get()
            await self._forward_output()
            self._tell(
                "program",
                label=ended.program.label,
                code=ended.code,
                out_of_memory=ended.out_of_memory,
            )

    async def _forward_output_forever(self) -> None:
        while True:
            await self._forward_output()
            await asyncio.sleep(LOOK_EVERY)

    async def _forward_output(self) -> None:
        """Send the output and checkpoints that are new until now."""
        async with self._forwarding:
            if self._output is not None:
                async for log, data in _read(self._output.read()):
                    self._tell("log", log=log, data=data)
            if self._checkpoints is not None:
                async for piece in _read(self._checkpoints.read()):
                    self._tell("checkpoint", **piece._asdict())

    async def _end_reporters(self, reporters: Tasks) -> None:
        async with self._forwarding:  # otherwise a piece that is read, and not sent yet, would be lost
            await reporters.cancel()

    async def _report_breakdown(self, lost: asyncio.Event, what: str) -> None:
        await lost.wait()
        self._break(f"the process that runs the nodes has ended: {what}")

    async def _watch(self, links: Fabric | Carrier) -> None:
        try:
            await links.watch()
        except OrchestratorError as error:
            self._break(str(error))

    def _break(self, error: str) -> None:
        self._tell("broken", error=error)
        self.over.set()


def _opened(what: T | None) -> T:
    if what is None:
        raise DriverError("nothing is open here: the agent has restarted, or the run is over")
    return what


async def _read(pieces: Iterator[T]) -> AsyncIterator[T]:
    """The pieces. Each is read in a thread."""
    while True:
        piece = await asyncio.to_thread(next, pieces, None)
        if piece is None:
            return
        yield piece


def _make_directory(path: Path) -> RunDirectory:
    """The directory of a run, made at ``path``."""
    path.mkdir()
    directory = RunDirectory(path)
    directory.furnish()
    return directory
