"""The files of a run on an agent's host: what the orchestrator brings, and what it fetches.

Nodes write there too, and may make links to other places. No link is followed.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from node.files import open_untrusted
from orchestrator.drivers.hosts.agents.channel import PIECE
from orchestrator.errors import DriverError


class Files:
    """The files of a run. Paths are in its directory, see `inside`."""

    def put(self, path: Path, data: bytes, first: bool, secret: bool) -> None:
        """Add bytes to a file. The ``first`` ones replace its content. Only this user can read a ``secret`` file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_TRUNC if first else os.O_APPEND)
        mode = 0o600 if secret else 0o644
        with open(os.open(path, flags, mode), "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(data)

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""
        path.unlink(missing_ok=True)

    def files(self, folder: Path) -> list[bytes]:
        """The files in a folder and below it, relative to it, without links. Empty if there is no such folder. Their
        names are bytes, as a program may choose any."""
        found = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
        return sorted(bytes(each.relative_to(folder)) for each in found if stat.S_ISREG(each.lstat().st_mode))

    def get(self, folder: Path, path: bytes, start: int) -> bytes:
        """A piece of a file, shorter than `PIECE` bytes at its end. DriverError if there is no such file."""
        shown = path.decode(errors="backslashreplace")
        try:
            file = (folder / os.fsdecode(path)).resolve()
            if not file.is_relative_to(folder.resolve()):
                raise DriverError(f"no file of the run: {shown}")
            with open_untrusted(file) as stream:
                stream.seek(start)
                return stream.read(PIECE)
        except (OSError, RuntimeError) as error:  # RuntimeError: of links that lead to themselves
            raise DriverError(f"{shown} cannot be read ({getattr(error, 'strerror', None) or error})") from None


def inside(base: Path, path: Path) -> Path:
    """A path in the directory of the run, its ``base``. DriverError if it leads elsewhere."""
    found = base / path
    if ".." in found.parts or not found.is_relative_to(base):
        raise DriverError(f"no file of the run: {path}")
    return found
