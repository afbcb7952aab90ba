"""Carries out the runs of a sweep on the hosts of a Docker Swarm, by agents that live for this sweep.

A host gets edgebed's code once, each data set once, and the directory of each run that it is to carry out. The files of
the run come back when it has ended. The runs of a lost host are done again on the others.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import io
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from node.assignment import PluginSource
from orchestrator.drivers.docker import node_image
from orchestrator.drivers.swarm.agents.calls import Host, HostRuns
from orchestrator.drivers.swarm.agents.channel import Agents, Message
from orchestrator.drivers.swarm.agents.settings import CODE, LEASE, RUNS
from orchestrator.drivers.swarm.agents.standing import access
from orchestrator.drivers.swarm.agents.starting import start_agents, wait_for_each
from orchestrator.drivers.swarm.cluster import Cluster, SwarmHost
from orchestrator.drivers.swarm.transfers.files import fetch, send_data, send_file
from orchestrator.drivers.swarm.transfers.image_copies import copy_images
from orchestrator.drivers.swarm.transfers.registry import image_of_agents
from orchestrator.errors import DriverError, HostError, LostError, OrchestratorError, RunError
from orchestrator.host.directory import RunDirectory
from orchestrator.host.hashes import hash_of_files
from orchestrator.host.process.python import ROOT
from orchestrator.run.remote import STAYS, travelling
from orchestrator.sweep.sharing import Sharing
from orchestrator.text import count
from orchestrator.verbs.image import PACKAGES

CARRIER = "orchestrator.sweep.carrier"
AWAY = 60.0  # s without any host after which a sweep ends

T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """A run that has begun: its ``number``, its directory, its prepared data set, and its plug-ins."""

    number: int
    directory: RunDirectory
    data: Path
    plugins: tuple[PluginSource, ...]


class RunQueue(Protocol):
    """The runs of a sweep. ``next``, ``done`` and ``failed`` may take long, and are called in a thread, one at a
    time."""

    def next(self) -> Job | None:
        """The next run; None if there is no other."""

    def begins(self, job: Job, host: str) -> None:
        """A host is given a run."""

    def stopped(self, job: Job, error: str) -> None:
        """A run got no result, and waits for another host."""

    def done(self, job: Job, host: str) -> None:
        """The files of a run are back from a host."""

    def failed(self, job: Job, error: str) -> None:
        """A run was tried several times, and got no result."""


async def provide(agents: Agents, host: SwarmHost, tell: Callable[[str], None]) -> None:
    """Bring a host the image of nodes if it lacks it. HostError if it cannot get the image."""
    await copy_images({host.name: {node_image.image_name()}}, {host.name: host.architecture}, agents, tell)


Provide = Callable[[Agents, SwarmHost, Callable[[str], None]], Awaitable[None]]


async def spread(
    cluster: Cluster,
    hosts: Sequence[SwarmHost],
    work: RunQueue,
    directory: RunDirectory,
    tell: Callable[[str], None],
    *,
    places: int | None = None,
    provide: Provide = provide,
) -> None:
    """Carry out all runs of ``work`` on these hosts of the swarm, which must be usable.

    ``directory`` is empty, and its name is the id of all that is made. ``tell`` prints a line. ``places``: how many
    runs each host carries out at once, by default one for each of its cores. ``provide`` brings a host the image of
    nodes. HostError if no host can be used, or if all stay away. If this is cancelled, the runs that are under way end
    without a result.
    """
    run, names = directory.run, [each.name for each in hosts]
    with ThreadPoolExecutor(1, "sweep") as thread:
        async with AsyncExitStack() as stack:
            offered = {each.name: places or max(1, int(each.cores)) for each in hosts}
            spreading = _Spreading(run, hosts, offered, work, tell, thread, provide)
            image = await asyncio.to_thread(image_of_agents)
            found = await asyncio.to_thread(access, cluster, image, stack.enter_context(ExitStack()))
            agents = Agents(found.server, found.agents.public, LEASE, spreading.hear, spreading.lose, spreading.find)
            stack.push_async_callback(agents.close)
            spreading.agents = agents
            tell(f"{'using' if found.service else 'starting'} agents on {count(len(hosts), 'host')} ({run})")
            if len(kinds := sorted({each.architecture for each in hosts})) > 1:
                tell(f"the hosts are of several kinds ({', '.join(kinds)}), which round differently")
            await start_agents(cluster, agents, run, directory.path, image, names, found, stack)
            stack.push_async_callback(spreading.close)
            beginning = asyncio.create_task(wait_for_each(cluster, agents, found.service or run, names))
            stack.callback(beginning.cancel)
            beginning.add_done_callback(spreading.begun)
            await spreading.all()


class _Spreading:
    """See `spread`."""

    def __init__(
        self,
        run: str,
        hosts: Sequence[SwarmHost],
        offered: dict[str, int],
        work: RunQueue,
        tell: Callable[[str], None],
        thread: ThreadPoolExecutor,
        provide: Provide,
    ) -> None:
        self.agents: Agents
        self._hosts, self._provide = {each.name: each for each in hosts}, provide
        self._run, self._offered, self._work, self._tell, self._thread = run, offered, work, tell, thread
        self._code = _packed()
        self._sharing = Sharing()
        self._jobs: dict[int, Job] = {}
        self._opening: list[str] = []  # hosts that get what they need; an image may take minutes
        self._bringing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._hashes: dict[Path, asyncio.Future[str]] = {}
        self._ends: dict[tuple[str, str], asyncio.Future[str | None]] = {}  # by host and run
        self._unusable: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._begun = False  # whether each host has begun or will not begin
        self._error: BaseException | None = None

    async def all(self) -> None:
        """Carry out all runs."""
        loop, more, alone = asyncio.get_running_loop(), True, None
        carrying: set[asyncio.Task[None]] = set()
        while more or carrying or self._sharing.waiting:
            self._changed.clear()
            if more and self._sharing.wants:
                job = await self._in_thread(self._work.next)
                more = job is not None
                if job is not None:
                    self._jobs[job.number] = job
                    self._sharing.add(job.number)
            while (taken := self._sharing.take()) is not None:
                carrying.add(self._begin(self._carry(self._jobs[taken[0]], taken[1])))
            if self._error is not None:
                raise self._error
            alone = None if self._sharing.hosts or self._opening else alone or loop.time()
            self._refuse_alone(alone is not None and loop.time() - alone > AWAY)
            if not (more and self._sharing.wants):
                with suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await self._changed.wait()
            carrying = {task for task in carrying if not task.done()}

    def _refuse_alone(self, long: bool) -> None:
        """HostError if no host can be used, or none has been there for long."""
        if self._unusable.keys() >= self._offered.keys():
            reasons = "; ".join(f"{host}: {self._unusable[host]}" for host in sorted(self._unusable))
            raise HostError(f"no host of the swarm can be used ({reasons})", "see `hosts doctor`")
        if long and self._begun:
            raise HostError(
                f"no host of the swarm has been there for {AWAY:.0f} s",
                "when they are back, start the same sweep again: it runs only what is missing",
            )

    def begun(self, waiting: asyncio.Task[dict[str, str]]) -> None:
        """Each host has begun, or will not begin."""
        if waiting.cancelled():
            return
        if (error := waiting.exception()) is not None:
            self._error = error
        else:
            self._begun = True
            for host, reason in waiting.result().items():
                self._refuse(host, reason)
        self._changed.set()

    def _refuse(self, host: str, reason: str) -> None:
        self._unusable[host] = reason.removeprefix(f"{host}: ")
        self._tell(f"the host {host} is not used: {self._unusable[host]}")
        self._changed.set()

    # What the agents say

    def hear(self, host: str, event: Message) -> None:
        match event:
            case {"name": "ended", "run": str(run), "error": None | str() as error}:
                end = self._ends.get((host, run))
                if end is not None and not end.done():
                    end.set_result(error)
            case {"name": "broken", "error": str(error)}:
                self.agents.lose(host, error)

    def lose(self, host: str, reason: str, silent: float) -> None:
        if host in self._sharing.hosts:
            self._tell(f"the host {host} is lost: {reason}")
        self._sharing.leave(host)
        for (where, _), end in self._ends.items():
            if where == host and not end.done():
                end.set_result(f"{host}: {reason}")
        self._changed.set()

    def find(self, host: str) -> None:
        if host in self._offered:
            self._begin(self._open(host))

    # The hosts

    async def _open(self, host: str) -> None:
        self._opening.append(host)
        try:
            await self._prepare(host)
        finally:
            self._opening.remove(host)
            self._changed.set()

    async def _prepare(self, host: str) -> None:
        try:
            await self.agents.call(host, Host.begin, self._run)
            await self._provide(self.agents, self._hosts[host], self._tell)
            await send_file(self.agents, host, self._code, Path(CODE))
            await self.agents.call(host, HostRuns.employ, node_image.image_name(), CARRIER, host)
        except LostError:
            return  # it is found again, or stays away
        except OrchestratorError as error:
            self._refuse(host, str(error))
            return
        self._unusable.pop(host, None)
        self._sharing.join(host, self._offered[host])
        self._changed.set()

    async def _carry(self, job: Job, host: str) -> None:
        """Have a host carry out a run, and see to what becomes of it."""
        self._work.begins(job, host)
        try:
            error = await self._carried(job, host)
        except OrchestratorError as told:
            error = str(told)
        if error is None:
            self._sharing.done(job.number, host)
            self._changed.set()
            await self._in_thread(self._work.done, job, host)
        elif self._sharing.again(job.number, host):
            self._work.stopped(job, error)
        else:
            await self._in_thread(self._work.failed, job, error)
        self._changed.set()

    async def _carried(self, job: Job, host: str) -> str | None:
        """Have a host carry out a run. Returns why it could not; None if the files are back."""
        agents, run = self.agents, job.directory.run
        sha256 = await self._hash(job.data)
        async with self._bringing[host]:
            await send_data(agents, host, job.data, sha256)
        for file in travelling(job.directory):
            await send_file(agents, host, file, Path(RUNS, run, file.relative_to(job.directory.path)))
        end: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._ends[host, run] = end
        try:
            await agents.call(host, HostRuns.carry, run, sha256, job.plugins)
            if (error := await end) is None:
                await self._fetch(job, host)
        finally:
            del self._ends[host, run]
        with suppress(DriverError):  # it goes with the sweep at the latest
            await agents.call(host, HostRuns.drop, run)
        return error

    async def _hash(self, data: Path) -> str:
        """That of a data set, which is read once."""
        if data not in self._hashes:
            self._hashes[data] = asyncio.ensure_future(asyncio.to_thread(hash_of_files, data))
        return await self._hashes[data]

    async def _fetch(self, job: Job, host: str) -> None:
        """Fetch the files of a run. They take their places when all are here. RunError if there is no room for them."""
        try:
            with tempfile.TemporaryDirectory(dir=job.directory.path, prefix=".arriving-") as arriving:
                own = job.directory
                for path in await fetch(self.agents, host, Path(RUNS, own.run), Path(arriving), STAYS):
                    _move(Path(arriving, path), own.path / path)
        except OSError as error:
            raise RunError(f"its files cannot be written to {job.directory.path} ({error.strerror})") from None

    # Helpers

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = error
            self._changed.set()

    async def _in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _move(path: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    path.replace(place)


def _packed() -> bytes:
    """Edgebed's code of this moment as an archive from which Python imports, with its version."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for file in sorted(Path(ROOT, package).rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, file.relative_to(ROOT))
        version = importlib.metadata.version("edgebed")
        archive.writestr("edgebed.dist-info/METADATA", f"Metadata-Version: 2.1\nName: edgebed\nVersion: {version}\n")
    return packed.getvalue()
