"""Files that the orchestrator copies to the hosts of a run, and fetches from them, in pieces over the channel."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

from orchestrator.drivers.hosts.agents.calls import HostDataSets, HostFiles
from orchestrator.drivers.hosts.agents.channel import PIECE
from orchestrator.drivers.hosts.agents.listener import Agents
from orchestrator.errors import DriverError
from orchestrator.host.hashes import files_in


async def send_file(
    agents: Agents,
    host: str,
    file: Path,
    path: Path,
) -> None:
    """Copy a file to ``path`` in a host's directory of the run."""
    stream = await asyncio.to_thread(file.open, "rb")
    with stream:
        async for data, first in _pieces(stream):
            await agents.call(host, HostFiles.put, path, data, first)


async def send_data(
    agents: Agents,
    host: str,
    folder: Path,
    sha256: str,
) -> None:
    """Have a host use a prepared data set, and copy it to the host if it does not keep it. ``sha256``: that of its
    files, see `hash_of_files`. DriverError if other files than those arrive."""
    is_kept = await agents.call(host, HostDataSets.has_data, sha256)
    if is_kept:
        return
    for file in await asyncio.to_thread(files_in, folder):
        name = file.name
        stream = await asyncio.to_thread(file.open, "rb")
        with stream:
            async for data, first in _pieces(stream):
                await agents.call(host, HostDataSets.put_data, sha256, name, data, first)
    await agents.call(host, HostDataSets.keep_data, sha256)


async def fetch(
    agents: Agents,
    host: str,
    folder: Path,
    into: Path,
) -> None:
    """Fetch the files below a folder of a host's directory of the run ``into`` another one."""
    paths = []
    for name in await agents.call(host, HostFiles.files, folder):
        path = Path(os.fsdecode(name))
        if path.is_absolute() or ".." in path.parts:
            raise DriverError(f"{host}: no file of the run: {path}")
        paths.append(path)
    for path in paths:
        name = bytes(path)
        file = await asyncio.to_thread(_create, into / path)
        with file:
            more = True
            while more:
                start = file.tell()
                data = await agents.call(host, HostFiles.get, folder, name, start)
                await asyncio.to_thread(file.write, data)
                more = len(data) == PIECE


def _create(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("wb")


async def _pieces(stream: IO[bytes]) -> AsyncIterator[tuple[bytes, bool]]:
    """The pieces of a file, and whether each is the first. An empty file has one."""
    first = True
    data = await asyncio.to_thread(stream.read, PIECE)
    while data or first:
        yield data, first
        first = False
        data = await asyncio.to_thread(stream.read, PIECE)
