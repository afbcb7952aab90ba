"""The files of a run on an agent's host: what the orchestrator brings, and what it fetches.

Nodes and the runs of a sweep write there too, and may make links to other places. No link is followed.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path

from node.files import open_untrusted
from orchestrator.drivers.swarm.channel import PIECE
from orchestrator.errors import DriverError
from orchestrator.host.directory import RunDirectory


class Files:
    """The verbs for files. Paths are relative to the ``directory`` of the run."""

    def __init__(self, directory: Callable[[], RunDirectory]) -> None:
        self._directory = directory

    async def put(self, path: str, data: bytes, first: bool) -> None:
        """Add bytes to a file."""
        await asyncio.to_thread(_add, self._inside(path), data, first)

    async def files(self, folder: str) -> list[str]:
        """The files of a folder and of those below it, relative to it."""
        return await asyncio.to_thread(files_below, self._inside(folder))

    async def get(self, folder: str, path: str, start: int) -> bytes:
        """A piece of a file of such a folder, see `piece_of`."""
        return await asyncio.to_thread(piece_of, self._inside(folder), path, start)

    def _inside(self, path: str) -> Path:
        """A path in the directory of the run. DriverError if it leads elsewhere."""
        base = self._directory().path
        found = base / path
        if ".." in found.parts or not found.is_relative_to(base):
            raise DriverError(f"no file of the run: {path}")
        return found


def _add(file: Path, data: bytes, first: bool) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb" if first else "ab") as stream:
        stream.write(data)
    file.chmod(0o644)


def files_below(folder: Path) -> list[str]:
    """The files in a folder and below it, relative to it, without links. Empty if there is no such folder."""
    found = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    return sorted(each.relative_to(folder).as_posix() for each in found if stat.S_ISREG(each.lstat().st_mode))


def piece_of(folder: Path, path: str, start: int) -> bytes:
    """A piece of a file in a folder or below it. It is shorter than `PIECE` bytes at the end of the file. DriverError
    if there is no such file."""
    try:
        file = (folder / path).resolve()
        if not file.is_relative_to(folder.resolve()):
            raise DriverError(f"no file of the run: {path}")
        with open_untrusted(file) as stream:
            stream.seek(start)
            return stream.read(PIECE)
    except (OSError, RuntimeError) as error:  # RuntimeError: of links that lead to themselves
        raise DriverError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error})") from None
