"""The driver for several hosts: the agent of a node's host makes the node. See `Driver` for the methods."""

from __future__ import annotations

import asyncio
import contextlib
import filecmp
import signal
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from node.runtime.checkpoint import checkpoint_path
from orchestrator.drivers.base import CanPause, Driver, Exit, HostChange, HostReadings, NodeMove
from orchestrator.drivers.hosts.agents.calls import Host, HostFiles, HostSetup, from_plain
from orchestrator.drivers.hosts.agents.delivery import Message
from orchestrator.drivers.hosts.agents.listener import Agents
from orchestrator.drivers.hosts.agents.relay import OrchestratorsEnd
from orchestrator.drivers.hosts.outage import HostOutage, OutageTimeouts
from orchestrator.drivers.hosts.transfers.file_writer import FileWriter
from orchestrator.drivers.hosts.transfers.files import send_data, send_file
from orchestrator.errors import DriverError, LostError, OrchestratorError
from orchestrator.fabric.base import NodeHandle
from orchestrator.host.hashes import hash_of_files
from orchestrator.host.sensors.sensor import Reading
from orchestrator.planning.hosts.moving import Between, kept_apart, moves
from orchestrator.planning.plan import NodePlan, Plan
from orchestrator.record.directory import RunDirectory
from orchestrator.together import Tasks, together, within

News = HostChange | NodeMove | HostReadings
Sensor = tuple[str, str, str]  # the first fields of `Reading`
Handles = dict[str, NodeHandle]  # by node
SetupOf = Callable[[str], HostSetup]
OnReopen = Callable[[str], Awaitable[None]]  # with a host that was reopened
OnMove = Callable[[Collection[str]], Awaitable[None]]  # with nodes that have another host now


class HostsDriver:
    """``hear``, ``lose`` and ``find`` take the events of agents, lost hosts and hosts with a connected agent: pass them
    to `Agents`.

    The nodes of a lost host count as killed. When its agent is connected again, the host is reopened, and its nodes can
    start from their last checkpoints. If it stays away, those that may are started on other hosts. ``homes`` has the
    present host of each node. Only this process starts nodes, each on its present host only.
    """

    def __init__(self, plan: Plan, directory: RunDirectory, timeouts: OutageTimeouts | None = None) -> None:
        self.name = plan.driver
        self.exits: asyncio.Queue[Exit] = asyncio.Queue()
        self.lost = asyncio.Event()
        self.news: asyncio.Queue[News] = asyncio.Queue()
        self.here = False  # whether nodes run on the orchestrator's host
        self.breakdown = ""  # hosts break down, and count as lost
        self.engines: dict[str, str] = {}  # the link engine of each host
        self.tcp: dict[str, Mapping[str, str]] = {}  # the TCP settings of nodes on each host
        self.homes: dict[str, str] = {}  # the present host of each node
        for node in plan.nodes:
            self.homes[node.name] = node.host
        self.between: Between = {}  # what was measured between the hosts
        self._plan = plan
        self._directory = directory
        self._timeouts = timeouts or OutageTimeouts()
        self.on_reopen: OnReopen = _nothing
        self.on_move: OnMove = _nothing
        self._agents: Agents
        self._data: str | None = None  # the hash of the data set's files; programs have none
        self._setup: SetupOf
        self._outages: dict[str, HostOutage] = {}
        self._change = asyncio.Event()  # hosts are back, or nodes have moved
        self._moving = asyncio.Lock()  # while links follow nodes, or are made on a host that was lost
        self._reopening = Tasks()
        self._relays: dict[str, OrchestratorsEnd] = {}
        self._running: defaultdict[str, Handles] = defaultdict(dict)  # by host
        self._sensing = False
        self._sensors: defaultdict[str, set[Sensor]] = defaultdict(set)  # those with readings, by host
        self._notes: list[str] = []
        self._logs = set(self.homes)
        for program in plan.programs:
            self._logs.add(program.label)
        self._writer = FileWriter()
        self.flush = self._writer.flush

    def use(self, agents: Agents) -> None:
        """The agents of this run. They are made after this driver, which handles their events."""
        self._agents = agents

    @property
    def hosts(self) -> list[str]:
        """The hosts on which nodes run."""
        names = {node.host for node in self._plan.nodes}
        return sorted(names)

    async def open(self) -> None:
        """Copy what its nodes need to each host, and open it."""
        await self._prepare()
        await together(self._open(host) for host in self.hosts)

    async def _prepare(self) -> None:
        folder = Path(self._plan.data_directory)
        self._data = await asyncio.to_thread(hash_of_files, folder)

    async def _open(self, host: str) -> None:
        agents = self._agents
        directory = self._directory

        def send(connection: int, data: bytes | None) -> None:
            agents.tell(host, "relay", connection=connection, data=data)

        run = directory.run
        self._relays[host] = OrchestratorsEnd(directory.socket, send)
        await agents.call(host, Host.begin, run)
        await self._send_files(host)

    async def _send_files(self, host: str) -> None:
        """Copy the files that its nodes need to a host."""
        agents = self._agents
        directory = self._directory
        await self.flush()
        folders = [directory.plugins]
        for node in self._on(host):
            folders.append(directory.checkpoints_of(node))
        files = await asyncio.to_thread(_files, folders)
        for file in [directory.shards, *files]:
            place = file.relative_to(directory.path)
            await send_file(agents, host, file, place)
        assert self._data is not None, "the data set was prepared"
        data_directory = Path(self._plan.data_directory)
        await send_data(agents, host, data_directory, self._data)

    async def open_links(self, setup: SetupOf) -> None:
        """Open driver, hub and links of each host. ``setup``: of a host, for its nodes at that moment."""
        self._setup = setup
        await together(self._open_links(host) for host in self.hosts)

    async def _open_links(self, host: str) -> None:
        setup = self._setup(host)
        data = self._data
        engine = await self._agents.call(host, Host.open, data, setup)
        self.engines[host] = engine.engine
        self.tcp[host] = engine.tcp
        former_notes = set(self._notes)
        for text in engine.notes:
            note = f"{host}: {text}"
            if note not in former_notes:
                self._notes.append(note)

    async def watch(self, end: Awaitable[str]) -> None:
        """Break down when all agents have ended. ``end`` returns the reason."""
        self.breakdown = await end
        self.lost.set()

    def has(self, host: str) -> bool:
        """Whether a host is available and open."""
        return host in self._relays and host not in self._outages

    @property
    def _available(self) -> list[str]:
        return [host for host in self.hosts if self.has(host)]

    async def ready(self, node: str) -> str | None:
        """Wait until a node of a lost host can start on any host. Returns why it cannot, or None if it can."""
        may_move = self._plan.restart == "on-failure"
        while True:
            host = self.homes[node]
            outage = self._outages.get(host)
            if outage is None:
                async with self._moving:
                    host = self.homes[node]
                    if host not in self._outages:
                        return kept_apart(
                            self._plan,
                            self.homes,
                            node,
                            self.between,
                        )
                continue
            outage.waiting.add(node)
            due, has_to_move = outage.due(node, self._timeouts, may_move=may_move)
            now = asyncio.get_running_loop().time()
            remaining = due - now
            if remaining > 0:
                self._change.clear()
                await within(remaining, self._change.wait())
            elif has_to_move:
                await self._move(outage)
            else:
                refusal = f"its host {outage.host} stays away"
                stuck = outage.stuck.get(node)
                if stuck:
                    refusal += f", and {stuck}"
                return refusal

    async def _move(self, outage: HostOutage) -> None:
        """Move the nodes that wait for a host to others, as far as they can."""
        async with self._moving:
            lost_host = outage.host
            is_present = self._outages.get(lost_host) is outage
            if not is_present or outage.opening:
                return
            waiting = outage.waiting & set(self._on(lost_host))
            waiting -= outage.stuck.keys()
            if not waiting:
                return
            decision = moves(
                self._plan,
                self.homes,
                waiting,
                set(self._available),
                self.between,
            )
            outage.stuck |= decision.staying
            for node, reason in decision.staying.items():
                staying = NodeMove(node, lost_host, None, reason)
                self.news.put_nowait(staying)
            self.homes |= decision.hosts
            await self.on_move(decision.hosts)
            for node, host in decision.hosts.items():
                age = await self._send_checkpoint(host, node)
                reason = f"{outage.reason}; {decision.reasons[node]}"
                move = NodeMove(node, lost_host, host, reason, age)
                self.news.put_nowait(move)
        self._change.set()

    async def _send_checkpoint(self, host: str, node: str) -> float | None:
        """Copy the checkpoint of a node to a host. Returns its age in seconds, None if the node has none."""
        await self.flush()
        folder = self._directory.checkpoints_of(node)
        file = checkpoint_path(folder, node)
        if not file.exists():
            return None
        written = file.stat().st_mtime
        age = time.time() - written
        place = file.relative_to(self._directory.path)
        try:
            await send_file(self._agents, host, file, place)
        except DriverError as error:  # then the node waits for this host, too
            self._agents.lose(host, str(error))
        return age

    async def start(self, node: NodePlan, assignment: Path, log: Path) -> NodeHandle:
        host = self.homes[node.name]
        base = self._directory.path
        remote_assignment = assignment.relative_to(base)
        remote_log = log.relative_to(base)
        if not self._plan.programs:
            content = await asyncio.to_thread(assignment.read_bytes)
            await self._agents.call(
                host,
                HostFiles.put,
                remote_assignment,
                content,
                first=True,
                secret=True,
            )
        local = await self._agents.call(
            host,
            Driver.start,
            node,
            remote_assignment,
            remote_log,
        )
        handle = replace(local, host=host)
        self._running[host][node.name] = handle
        return handle

    async def forget(self, node: str) -> None:
        with contextlib.suppress(LostError):  # what a lost host has is removed when its agent restarts
            assignment = self._directory.nodes / f"{node}.json"
            place = assignment.relative_to(self._directory.path)
            host = self.homes[node]
            await self._agents.call(host, HostFiles.remove, place)

    async def kill(self, node: str) -> None:
        host = self.homes[node]
        await self._agents.call(host, Driver.kill, node)

    async def pause(self, node: str) -> None:
        host = self.homes[node]
        await self._agents.call(host, CanPause.pause, node)

    async def resume(self, node: str) -> None:
        host = self.homes[node]
        await self._agents.call(host, CanPause.resume, node)

    async def sense(self) -> None:
        """Read the sensors of each host. A host has no readings if its agent does not answer."""
        self._sensing = True
        await together(self._sense(host) for host in self._available)

    async def _sense(self, host: str) -> None:
        # The reason is in the agent's log, or in the news that the host is lost.
        with contextlib.suppress(DriverError):
            await self._agents.call(host, Host.sense)

    def note(self, *notes: str) -> None:
        """Add notes for the record."""
        self._notes += notes

    def notes(self) -> list[str]:
        return sorted(self._notes)

    async def close(self) -> None:
        """End the nodes and the links of each host. The last output of the nodes arrives before."""
        await self._reopening.cancel()
        opened = [host for host in self._relays if self.has(host)]
        try:
            await together(self._finish(host) for host in opened)
        finally:
            for relay in self._relays.values():
                await relay.close()
            await self.flush()

    async def _finish(self, host: str) -> None:
        try:
            await self._agents.call(host, Host.finish)
        except DriverError as error:
            run = self._directory.run
            raise DriverError(f"{error}; `down {run}` shows what it may have left") from None

    # Events of the agents

    def hear(self, host: str, event: Message) -> None:
        """An event of an agent, see `orchestrator.agent.worker`."""
        match event:
            case {
                "name": "exit",
                "node": str(node),
                "pid": int(pid),
                "code": int(code),
            }:
                handle = NodeHandle(pid, host)
                out_of_memory = event.get("out_of_memory") is True
                end = Exit(node, handle, code, out_of_memory)
                self._handle_exit(host, end)
            case {"name": "log", "log": str(log), "data": bytes(data)}:
                name = log if log in self._logs else f"{host}.{log}"
                file_name = Path(name).name  # without folders
                path = self._directory.logs / f"{file_name}.log"
                self._writer.add(_append, path, data)
            case {"name": "checkpoint", "node": str(node), "data": bytes(data)}:
                if self.homes.get(node) == host:
                    folder = self._directory.checkpoints_of(node)
                    path = checkpoint_path(folder, node)
                    first = event["first"]
                    last = event["last"]
                    self._writer.add(_keep, path, data, first, last)
            case {"name": "relay", "connection": int(connection)}:
                relay = self._relays[host]
                relay.take(connection, event["data"])
            case {"name": "sensors", "readings": list(rows)}:
                received = from_plain(dict[str, list[Reading]], {"readings": rows})
                readings = received["readings"]
                sensors = [reading[:3] for reading in readings]
                self._sensors[host].update(sensors)
                news = HostReadings(host, readings)
                self.news.put_nowait(news)
            case {"name": "broken", "error": str(error)}:
                self._agents.lose(host, error)

    def lose(self, host: str, reason: str, silent: float) -> None:
        """An agent was ``silent`` for so many seconds and is lost, with its nodes: those that still run end by its
        lease."""
        if host not in self._relays:
            return
        error = f"the host is lost: {reason}"
        sensors = self._sensors.pop(host, set())
        last = [Reading(*sensor, None, error) for sensor in sorted(sensors)]
        readings = HostReadings(host, last, silent)
        self.news.put_nowait(readings)
        change = HostChange(host, "lost", reason)
        self.news.put_nowait(change)
        now = asyncio.get_running_loop().time()
        outage = HostOutage(host, now, reason)
        self._outages.setdefault(host, outage)
        running = self._running.pop(host, {})
        for node, handle in running.items():
            killed = Exit(node, handle, -signal.SIGKILL)
            self.exits.put_nowait(killed)

    def find(self, host: str) -> None:
        """An agent is connected. A host that was lost is reopened."""
        outage = self._outages.get(host)
        if outage is not None:
            reopening = self._reopen(outage)
            self._reopening.start(reopening)

    async def _reopen(self, outage: HostOutage) -> None:
        """Open a host again for its present nodes. Its agent has first removed everything from before."""
        host = outage.host
        outage.opening += 1
        try:
            await self._relays[host].close()
            await self._open(host)
            async with self._moving:
                await self._open_links(host)
                await self.on_reopen(host)
                del self._outages[host]
        except OrchestratorError as error:
            unusable = HostChange(host, "unusable", str(error))
            self.news.put_nowait(unusable)
        else:
            back = HostChange(host, "back")
            self.news.put_nowait(back)
        finally:
            outage.opening -= 1
            self._change.set()
        if self._sensing and self.has(host):
            await self._sense(host)

    def _handle_exit(self, host: str, exit: Exit) -> None:
        running = self._running[host]
        if running.get(exit.node) == exit.handle:
            del running[exit.node]
        self._writer.then(self.exits.put_nowait, exit)  # its last output comes before

    def _on(self, host: str) -> list[str]:
        nodes = []
        for node, home in self.homes.items():
            if home == host:
                nodes.append(node)
        return nodes


def _keep(
    path: Path,
    data: bytes,
    first: bool,
    last: bool,
) -> None:
    """Add a piece to a node's checkpoint, which replaces the former one when whole, unless they are equal."""
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(".part")
    _append(part, data, first=first)
    if not last:
        return
    is_same = False
    if path.exists():
        is_same = filecmp.cmp(part, path, shallow=False)
    if is_same:
        part.unlink()
    else:
        part.replace(path)


def _append(path: Path, data: bytes, *, first: bool = False) -> None:
    """Add bytes to a file. The first ones replace its content."""
    mode = "wb" if first else "ab"
    with path.open(mode) as file:
        file.write(data)


def _files(folders: Iterable[Path]) -> list[Path]:
    """All files in these folders and below them."""
    files = []
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                files.append(path)
    return files


async def _nothing(_: object) -> None:
    pass
