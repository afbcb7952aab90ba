"""Files of data that a user names: only regular files are opened, and only what fits into memory is read."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from node.learning.errors import DataError
from node.resources import available_bytes

SMALL = 1 << 16  # bytes
TOOLS = {"__MACOSX", "@eaDir"}  # folders that tools leave


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file, also by a symbolic link. DataError for a folder, a device or a pipe, which is not opened."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            return path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    if stat.S_ISDIR(mode):
        kind = "a folder"
    else:
        kind = "a device, pipe or socket"
    raise DataError(f"{path}: is {kind}, not a file")


def refuse_large(source: str | Path, size: int) -> None:
    """DataError if ``size`` bytes are more than the memory that this host has left. The kernel is not asked for small
    sizes, since a folder may have many files."""
    if size <= SMALL:
        return
    left = available_bytes()
    if size > left:
        raise DataError(
            f"{source}: needs {size / 1e9:,.1f} GB of memory, and this host has {left / 1e9:,.1f} GB left; "
            "take a part of the data, or a host with more memory"
        )


def read_regular(path: Path) -> bytes:
    """The content of a regular file that fits into memory."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        refuse_large(path, size)
        return file.read()


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, without a byte order mark."""
    try:
        return read_regular(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text (byte {error.start})") from None


def below(folder: Path) -> Iterator[str]:
    """The files of a folder and of all folders below it, relative to it, in no order. An empty folder is named too,
    with a slash at the end.

    Symbolic links are followed. DataError if a folder cannot be read, or is reached twice.
    """
    seen = set()
    walk = os.walk(folder, onerror=_refuse, followlinks=True)
    for place, folders, files in walk:
        status = os.stat(place)
        identity = (status.st_dev, status.st_ino)
        if identity in seen:
            raise DataError(f"{place}: symbolic links lead to this folder more than once; remove one of them")
        seen.add(identity)
        relative = Path(place).relative_to(folder)
        for name in files:
            yield (relative / name).as_posix()
        if not folders and not files:
            yield f"{relative.as_posix()}/"


def _refuse(error: OSError) -> None:
    raise DataError(f"{error.filename}: cannot be read ({error.strerror})")
