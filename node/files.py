"""Files that another program may have written."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def open_untrusted(path: Path) -> io.BufferedReader:
    """Open a regular file. OSError for anything else, which is not waited for: a symbolic link, a pipe, a device."""
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.EINVAL, "it is a symbolic link", str(path)) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return open(descriptor, "rb")


def read_untrusted(path: Path, most: int) -> bytes:
    """The content of a regular file of at most ``most`` bytes. OSError for anything else, see `open_untrusted`."""
    with open_untrusted(path) as file:
        status = os.fstat(file.fileno())
        size = status.st_size
        if size > most:
            raise OSError(errno.EINVAL, f"it has more than {most:,} bytes", str(path))
        return file.read(size)
