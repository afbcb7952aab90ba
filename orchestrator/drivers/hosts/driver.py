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


class HostsDriver:
    """``hear``, ``lose`` and ``find`` take what the agents say, and which hosts are lost and found: give them to
    `Agents`.

    The nodes of a lost host count as killed. When its agent is there again, the host is opened anew, and its nodes can
    start from their last checkpoints. If it stays away, those that may are started on other hosts. ``homes`` has the
    present host of each node. Only this process starts nodes, each on its present host only.
    """

    def __init__(self, plan: Plan, directory: RunDirectory, timeouts: OutageTimeouts | None = None) -> None:
        self.name = plan.driver
        self.exits: asyncio.Queue[Exit] = asyncio.Queue()
        self.lost = asyncio.Event()
        self.news: asyncio.Queue[HostChange | NodeMove | HostReadings] = asyncio.Queue()
        self.here = False  # whether nodes live on the orchestrator's host
        self.breakdown = ""  # hosts break down, and count as lost
        self.engines: dict[str, str] = {}  # the link engine of each host
        self.tcp: dict[str, Mapping[str, str]] = {}  # the TCP settings of nodes on each host
        self.homes = {node.name: node.host for node in plan.nodes}
        self.between: Between = {}  # what was measured between the hosts
        self._plan, self._directory, self._timeouts = plan, directory, timeouts or OutageTimeouts()
        self.on_reopen: Callable[[str], Awaitable[None]] = _nothing  # is awaited with a host that was reopened
        self.on_move: Callable[[Collection[str]], Awaitable[None]] = _nothing  # with nodes that have another host now
        self._agents: Agents
        self._data: str | None = None  # the hash of the data set's files; programs have none
        self._setup: Callable[[str], HostSetup]
        self._outages: dict[str, HostOutage] = {}
        self._change = asyncio.Event()  # hosts are back, or nodes have moved
        self._moving = asyncio.Lock()  # while links follow nodes, or are made on a host that was lost
        self._reopening = Tasks()
        self._relays: dict[str, OrchestratorsEnd] = {}
        self._running: defaultdict[str, dict[str, NodeHandle]] = defaultdict(dict)  # by host, by node
        self._sensing = False
        self._sensors: defaultdict[str, set[tuple[str, str, str]]] = defaultdict(set)  # those that told, by host
        self._notes: list[str] = []
        self._logs = {*self.homes, *(program.label for program in plan.programs)}
        self._writer = FileWriter()
        self.flush = self._writer.flush

    def use(self, agents: Agents) -> None:
        """The agents of this run. They are made after this driver, which hears them."""
        self._agents = agents

    @property
    def hosts(self) -> list[str]:
        """The hosts on which nodes live."""
        return sorted({node.host for node in self._plan.nodes})

    async def open(self) -> None:
        """Bring each host what its nodes need, and open it."""
        await self._prepare()
        await together(self._open(host) for host in self.hosts)

    async def _prepare(self) -> None:
        self._data = await asyncio.to_thread(hash_of_files, Path(self._plan.data_directory))

    async def _open(self, host: str) -> None:
        agents = self._agents
        directory = self._directory
        self._relays[host] = OrchestratorsEnd(
            directory.socket,
            lambda connection, data: agents.tell(host, "relay", connection=connection, data=data),
        )
        await agents.call(host, Host.begin, directory.run)
        await self._send_files(host)

    async def _send_files(self, host: str) -> None:
        """Bring a host the files that its nodes need."""
        agents = self._agents
        directory = self._directory
        await self.flush()
        folders = [directory.plugins, *map(directory.checkpoints_of, self._on(host))]
        for file in (directory.shards, *await asyncio.to_thread(_files, folders)):
            await send_file(agents, host, file, file.relative_to(directory.path))
        assert self._data is not None, "the data set was prepared"
        await send_data(agents, host, Path(self._plan.data_directory), self._data)

    async def open_links(self, setup: Callable[[str], HostSetup]) -> None:
        """Open driver, hub and links of each host. ``setup``: of a host, for its nodes at that moment."""
        self._setup = setup
        await together(self._open_links(host) for host in self.hosts)

    async def _open_links(self, host: str) -> None:
        found = await self._agents.call(host, Host.open, self._data, self._setup(host))
        self.engines[host] = found.engine
        self.tcp[host] = found.tcp
        self._notes += [note for each in found.notes if (note := f"{host}: {each}") not in self._notes]

    async def watch(self, end: Awaitable[str]) -> None:
        """Break down when ``end`` says why all agents have ended."""
        self.breakdown = await end
        self.lost.set()

    def has(self, host: str) -> bool:
        """Whether a host is there, and open."""
        return host in self._relays and host not in self._outages

    async def ready(self, node: str) -> str | None:
        """Wait until a node of a lost host can start on any host. Returns why it cannot, or None if it can."""
        while True:
            outage = self._outages.get(self.homes[node])
            if outage is None:
                async with self._moving:
                    if self.homes[node] not in self._outages:
                        return kept_apart(self._plan, self.homes, node, self.between)
                continue
            outage.waiting.add(node)
            due, moves = outage.due(node, self._timeouts, may_move=self._plan.restart == "on-failure")
            left = due - asyncio.get_running_loop().time()
            if left > 0:
                self._change.clear()
                await within(left, self._change.wait())
            elif moves:
                await self._move(outage)
            else:
                reason = outage.stuck.get(node)
                return f"its host {outage.host} stays away" + (f", and {reason}" if reason else "")

    async def _move(self, outage: HostOutage) -> None:
        """Let the nodes that wait for a host live on others, as far as they can."""
        async with self._moving:
            waiting = {each for each in outage.waiting if self.homes[each] == outage.host} - outage.stuck.keys()
            if self._outages.get(outage.host) is not outage or outage.opening or not waiting:
                return
            there = {host for host in self.hosts if self.has(host)}
            found = moves(self._plan, self.homes, waiting, there, self.between)
            outage.stuck |= found.staying
            for node, reason in found.staying.items():
                self.news.put_nowait(NodeMove(node, outage.host, None, reason))
            self.homes |= found.hosts
            await self.on_move(found.hosts)
            for node, host in found.hosts.items():
                age = await self._send_checkpoint(host, node)
                reason = f"{outage.reason}; {found.reasons[node]}"
                self.news.put_nowait(NodeMove(node, outage.host, host, reason, age))
        self._change.set()

    async def _send_checkpoint(self, host: str, node: str) -> float | None:
        """Bring a host the checkpoint of a node. Returns its age in seconds, None if there is none."""
        await self.flush()
        file = checkpoint_path(self._directory.checkpoints_of(node), node)
        if not file.exists():
            return None
        age = time.time() - file.stat().st_mtime
        try:
            await send_file(self._agents, host, file, file.relative_to(self._directory.path))
        except DriverError as error:  # then the node waits for this host, too
            self._agents.lose(host, str(error))
        return age

    async def start(self, node: NodePlan, assignment: Path, log: Path) -> NodeHandle:
        host = self.homes[node.name]
        base = self._directory.path
        place = assignment.relative_to(base)
        log = log.relative_to(base)
        if not self._plan.programs:
            content = await asyncio.to_thread(assignment.read_bytes)
            await self._agents.call(host, HostFiles.put, place, content, first=True, secret=True)
        handle = replace(await self._agents.call(host, Driver.start, node, place, log), host=host)
        self._running[host][node.name] = handle
        return handle

    async def forget(self, node: str) -> None:
        with contextlib.suppress(LostError):  # what a lost host has is removed when its agent begins again
            place = (self._directory.nodes / f"{node}.json").relative_to(self._directory.path)
            await self._agents.call(self.homes[node], HostFiles.remove, place)

    async def kill(self, node: str) -> None:
        await self._agents.call(self.homes[node], Driver.kill, node)

    async def pause(self, node: str) -> None:
        await self._agents.call(self.homes[node], CanPause.pause, node)

    async def resume(self, node: str) -> None:
        await self._agents.call(self.homes[node], CanPause.resume, node)

    async def sense(self) -> None:
        """Read the sensors of each host. A host whose agent does not answer tells nothing."""
        self._sensing = True
        await together(self._sense(host) for host in self.hosts if self.has(host))

    async def _sense(self, host: str) -> None:
        with contextlib.suppress(DriverError):  # why, is in the agent's log, or in the news that the host is lost
            await self._agents.call(host, Host.sense)

    def note(self, *notes: str) -> None:
        """Add notes for the record."""
        self._notes += notes

    def notes(self) -> list[str]:
        return sorted(self._notes)

    async def close(self) -> None:
        """End the nodes and the links of each host. The last output of the nodes arrives before."""
        await self._reopening.cancel()
        try:
            await together(self._finish(host) for host in self._relays if self.has(host))
        finally:
            for relay in self._relays.values():
                await relay.close()
            await self.flush()

    async def _finish(self, host: str) -> None:
        try:
            await self._agents.call(host, Host.finish)
        except DriverError as error:
            raise DriverError(f"{error}; `down {self._directory.run}` shows what it may have left") from None

    # What the agents say

    def hear(self, host: str, event: Message) -> None:
        """An event of an agent, see `orchestrator.agent.worker`."""
        match event:
            case {"name": "exit", "node": str(node), "pid": int(pid), "code": int(code)}:
                lack = event.get("out_of_memory") is True
                self._handle_exit(host, Exit(node, NodeHandle(pid, host), code, lack))
            case {"name": "log", "log": str(log), "data": bytes(data)}:
                name = log if log in self._logs else f"{host}.{log}"
                self._writer.add(_append, self._directory.logs / f"{Path(name).name}.log", data)
            case {"name": "checkpoint", "node": str(node), "data": bytes(data)} if self.homes.get(node) == host:
                path = checkpoint_path(self._directory.checkpoints_of(node), node)
                self._writer.add(_keep, path, data, event["first"], event["last"])
            case {"name": "relay", "connection": int(connection)}:
                self._relays[host].take(connection, event["data"])
            case {"name": "sensors", "readings": list(rows)}:
                readings = from_plain(dict[str, list[Reading]], {"readings": rows})["readings"]
                self._sensors[host].update(each[:3] for each in readings)
                self.news.put_nowait(HostReadings(host, readings))
            case {"name": "broken", "error": str(error)}:
                self._agents.lose(host, error)

    def lose(self, host: str, reason: str, silent: float) -> None:
        """An agent was silent for so long and is lost, with its nodes: whatever still runs there ends by its lease."""
        if host not in self._relays:
            return
        ended = [
            Reading(*sensor, None, f"the host is lost: {reason}") for sensor in sorted(self._sensors.pop(host, ()))
        ]
        self.news.put_nowait(HostReadings(host, ended, silent))
        self.news.put_nowait(HostChange(host, "lost", reason))
        self._outages.setdefault(host, HostOutage(host, asyncio.get_running_loop().time(), reason))
        for node, handle in self._running.pop(host, {}).items():
            self.exits.put_nowait(Exit(node, handle, -signal.SIGKILL))

    def find(self, host: str) -> None:
        """An agent is there. A host that was lost is opened anew."""
        outage = self._outages.get(host)
        if outage is not None:
            self._reopening.start(self._reopen(outage))

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
            self.news.put_nowait(HostChange(host, "unusable", str(error)))
        else:
            self.news.put_nowait(HostChange(host, "back"))
        finally:
            outage.opening -= 1
            self._change.set()
        if self._sensing and self.has(host):
            await self._sense(host)

    def _handle_exit(self, host: str, exit: Exit) -> None:
        if self._running[host].get(exit.node) == exit.handle:
            del self._running[host][exit.node]
        self._writer.then(self.exits.put_nowait, exit)  # its last output comes before

    def _on(self, host: str) -> list[str]:
        return [node for node, home in self.homes.items() if home == host]


def _keep(path: Path, data: bytes, first: bool, last: bool) -> None:
    """Add a piece to a node's checkpoint, which replaces the former one when whole, unless they are equal."""
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(".part")
    _append(part, data, first=first)
    if last and path.exists() and filecmp.cmp(part, path, shallow=False):
        part.unlink()
    elif last:
        part.replace(path)


def _append(path: Path, data: bytes, *, first: bool = False) -> None:
    """Add bytes to a file. The first ones replace its content."""
    with path.open("wb" if first else "ab") as file:
        file.write(data)


def _files(folders: Iterable[Path]) -> list[Path]:
    """All files in these folders and below them."""
    return [each for folder in folders for each in sorted(folder.rglob("*")) if each.is_file()]


async def _nothing(_: object) -> None:
    pass
