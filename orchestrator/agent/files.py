"""The files of a run on an agent's host: what the orchestrator copies to it, and what it fetches.

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

    def put(
        self,
        path: Path,
        data: bytes,
        first: bool,
        secret: bool,
    ) -> None:
        """Add bytes to a file. The ``first`` ones replace its content. Only this user can read a ``secret`` file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        if first:
            flags |= os.O_TRUNC
        else:
            flags |= os.O_APPEND
        mode = 0o600 if secret else 0o644
        descriptor = os.open(path, flags, mode)
        with open(descriptor, "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(data)

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""
        path.unlink(missing_ok=True)

    def files(self, folder: Path) -> list[bytes]:
        """The files in a folder and below it, relative to it, without links. Empty if there is no such folder. Their
        names are bytes, as a program may choose any."""
        paths = []
        for place, _, names in os.walk(folder):
            for name in names:
                file = Path(place, name)
                if stat.S_ISREG(file.lstat().st_mode):
                    paths.append(bytes(file.relative_to(folder)))
        return sorted(paths)

    def get(self, folder: Path, path: bytes, start: int) -> bytes:
        """A piece of a file, shorter than `PIECE` bytes at its end. DriverError if there is no such file."""
        shown = path.decode(errors="backslashreplace")
        try:
            file = folder / os.fsdecode(path)
            file = file.resolve()
            if not file.is_relative_to(folder.resolve()):
                raise DriverError(f"no file of the run: {shown}")
            with open_untrusted(file) as stream:
                stream.seek(start)
                return stream.read(PIECE)
        except (OSError, RuntimeError) as error:  # RuntimeError: of links that lead to themselves
            reason = getattr(error, "strerror", None) or error
            raise DriverError(f"{shown} cannot be read ({reason})") from None


def inside(base: Path, path: Path) -> Path:
    """A path in the directory of the run, its ``base``. DriverError if it leads elsewhere."""
    absolute = base / path
    if ".." in absolute.parts or not absolute.is_relative_to(base):
        raise DriverError(f"no file of the run: {path}")
    return absolute
