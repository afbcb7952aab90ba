"""Files that another program may have written."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_untrusted(path: Path, most: int) -> bytes:
    """The content of a regular file of at most ``most`` bytes. OSError for anything else, which is not waited for: a
    symbolic link, a pipe, a device, a longer file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.EINVAL, "it is a symbolic link", str(path)) from None
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > most:
        os.close(descriptor)
        reason = f"it has more than {most:,} bytes" if stat.S_ISREG(status.st_mode) else "it is not a regular file"
        raise OSError(errno.EINVAL, reason, str(path))
    with open(descriptor, "rb") as file:
        return file.read(status.st_size)
