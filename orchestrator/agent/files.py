"""The files that nodes, or the runs of a sweep, have written on an agent's host: the orchestrator fetches them.

Whoever writes there may also make links to other places. No link leads out of the folder.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from orchestrator.drivers.swarm.channel import PIECE
from orchestrator.errors import DriverError


def files_below(folder: Path) -> list[str]:
    """The files in a folder and below it, relative to it, without links. Empty if there is no such folder."""
    found = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    return sorted(each.relative_to(folder).as_posix() for each in found if stat.S_ISREG(each.lstat().st_mode))


def piece_of(folder: Path, path: str, start: int) -> bytes:
    """A piece of a file in a folder or below it. It is shorter than `PIECE` bytes at the end of the file. DriverError
    if there is no such file."""
    file = (folder / path).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise DriverError(f"no file of the run: {path}")
    try:
        with file.open("rb") as stream:
            stream.seek(start)
            return stream.read(PIECE)
    except OSError as error:
        raise DriverError(f"{path} cannot be read ({error.strerror})") from None
