"""The runs of a sweep on an agent's host, and what carries them out (`orchestrator.sweep.carrier`)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from node.assignment import PluginSource
from orchestrator.drivers.swarm.agents.settings import MARK, RUNS
from orchestrator.errors import DriverError, HostError
from orchestrator.host.directory import RunDirectory

READY = 90.0  # s; a Raspberry Pi takes half a minute to load torch
LAST_WORDS = 6  # lines


@dataclass(frozen=True)
class RunWorker:
    """What carries out runs: ``send`` gives it a line of input. The files of runs must belong to ``user``, a user and a
    group."""

    send: Callable[[str], None]
    user: tuple[int, int]


Start = Callable[[str, Sequence[str], RunDirectory, Callable[[str | None], None], AsyncExitStack], Awaitable[RunWorker]]
"""Starts a carrier, see `orchestrator.agent.carriers.start_carrier`."""


class AssignedRuns:
    """The runs of a sweep. ``tell`` sends events, ``fail`` is called if the carrier ends by itself."""

    def __init__(
        self,
        tell: Callable[..., None],
        fail: Callable[[str], None],
        start: Start,
        directory: Callable[[], RunDirectory],
    ) -> None:
        self._tell, self._fail, self._start, self._directory = tell, fail, start, directory
        self._carrier: RunWorker | None = None
        self._ready: asyncio.Future[None]
        self._last_lines: deque[str] = deque(maxlen=LAST_WORDS)
        self._closing = False
        self._stack = AsyncExitStack()

    async def employ(self, image: str, module: str, name: str) -> None:
        """Start the carrier, see `Start`, and wait until it is ready. HostError if it ends before."""
        self._ready = asyncio.get_running_loop().create_future()
        self._carrier = await self._start(image, [module, name], self._directory(), self._hear, self._stack)
        try:
            async with asyncio.timeout(READY):
                await self._ready
        except TimeoutError:
            raise HostError(f"the worker for runs was not ready within {READY:.0f} s{self._last_words()}") from None

    async def carry(self, run: str, data: str, plugins: Sequence[PluginSource]) -> None:
        """Begin to carry out a run, whose files were put there. The event ``ended`` tells its end."""
        if self._carrier is None:
            raise DriverError("no worker runs here: the agent has restarted")
        await asyncio.to_thread(_give, self._path(run), self._carrier.user)
        line = json.dumps({"run": run, "data": data, "plugins": [asdict(each) for each in plugins]})
        await asyncio.to_thread(self._carrier.send, line)

    def drop(self, run: str) -> None:
        """Remove the files of a run."""
        shutil.rmtree(self._path(run))

    async def close(self) -> None:
        self._closing = True
        await self._stack.aclose()

    def _path(self, run: str) -> Path:
        if Path(run).name != run or run in ("", ".."):
            raise DriverError(f"no run: {run}")
        return self._directory().path / RUNS / run

    def _hear(self, line: str | None) -> None:
        """A line of the carrier's output; None at its end."""
        if line is None:
            error = f"the worker for runs has ended{self._last_words()}"
            if not self._ready.done():
                self._ready.set_exception(HostError(error))
                self._ready.exception()  # seen, also if `employ` was cancelled and nobody waits for it
            elif not self._closing:
                self._fail(error)
        elif not line.startswith(MARK):
            self._last_lines.append(line)
            self._tell("log", log=RUNS, data=f"{line}\n".encode())
        elif message := json.loads(line.removeprefix(MARK)):
            self._tell("ended", run=message["run"], error=message["error"])
        elif not self._ready.done():
            self._ready.set_result(None)

    def _last_words(self) -> str:
        said = " / ".join(each.strip() for each in self._last_lines if each.strip())
        return f": {said}" if said else ""


def _give(folder: Path, user: tuple[int, int]) -> None:
    """Give a folder and all that is in it to a user and a group."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, *user, follow_symlinks=False)
