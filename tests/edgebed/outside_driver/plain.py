"""The driver `plain`, as the package of an outsider: nodes are plain processes of this host. They have no network of
their own, so links have no settings, and no limits. It uses the public names of edgebed only."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import edgebed


class PlainDriver:
    """See `edgebed.Driver` and `edgebed.CanPause`."""

    name = "plain"
    breakdown = ""

    def __init__(self, directory: edgebed.RunDirectory) -> None:
        self.exits: asyncio.Queue[edgebed.Exit] = asyncio.Queue()
        self.lost = asyncio.Event()
        self._directory = directory
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._waiting: dict[str, asyncio.Task[None]] = {}

    async def open(self) -> None:
        pass

    async def start(self, node: edgebed.NodePlan, assignment: Path, log: Path) -> edgebed.NodeHandle:
        process = await edgebed.start_node(assignment, log, self._directory)
        handle = edgebed.NodeHandle(process.pid)
        self._processes[node.name] = process
        self._waiting[node.name] = asyncio.create_task(self._wait(node.name, process, handle))
        return handle

    async def kill(self, node: str) -> None:
        self._running(node).kill()

    async def pause(self, node: str) -> None:
        self._running(node).send_signal(signal.SIGSTOP)

    async def resume(self, node: str) -> None:
        self._running(node).send_signal(signal.SIGCONT)

    def notes(self) -> list[str]:
        return ["nodes have no limits of cores and memory, and see the files of this host"]

    async def close(self) -> None:
        for process in self._processes.values():
            process.kill()
        await asyncio.gather(*self._waiting.values())

    def _running(self, node: str) -> asyncio.subprocess.Process:
        if node not in self._processes:
            raise edgebed.DriverError(f"{node} does not run")
        return self._processes[node]

    async def _wait(self, node: str, process: asyncio.subprocess.Process, handle: edgebed.NodeHandle) -> None:
        code = await process.wait()
        del self._processes[node]
        self.exits.put_nowait(edgebed.Exit(node, handle, code))


def missing(plan: edgebed.Plan | None = None) -> list[edgebed.HostError]:
    return []


async def open_environment(
    plan: edgebed.Plan,
    directory: edgebed.RunDirectory,
    stack: AsyncExitStack,
    workers: int,
    tell: Callable[[str], object],
) -> edgebed.Environment:
    driver = PlainDriver(directory)
    stack.push_async_callback(driver.close)
    await driver.open()
    return await edgebed.unshaped_environment(driver, plan, directory, stack)


PLUGIN = edgebed.Plugin(
    drivers=[edgebed.DriverKind("plain", "", shapes_links=False, summary="plain processes of this host")]
)
