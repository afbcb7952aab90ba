"""Standard input, output and error, made safe so that a run does not depend on the readers of its output."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_UNREAD = (errno.EPIPE, errno.EIO, errno.EBADF)  # nobody reads: the reader has ended, or the terminal is gone


def survive_readers() -> None:
    """Replace the standard streams by streams on which a write never fails. Output that cannot be written is dropped.

    A closed standard stream becomes /dev/null. Otherwise the next opened file would get its descriptor.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor
            os.set_inheritable(descriptor, True)
    sys.stdout, sys.stderr = _survivor(1, sys.stdout), _survivor(2, sys.stderr)


def lost_output() -> OSError | None:
    """Why standard output could not be written, for example a full disk. None if it was written or had no reader."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    error = raw.refused if isinstance(raw, _Survivor) else None
    return None if error is None or error.errno in _UNREAD else error


class _Survivor(io.FileIO):
    """A file on which a write never fails. ``refused`` is the first error."""

    refused: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.refused = self.refused or error
            return memoryview(data).nbytes


def _survivor(descriptor: int, known: TextIO | None) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(_Survivor(descriptor, "w", closefd=False)),
        encoding=known.encoding if known is not None else "utf-8",
        errors=known.errors if known is not None else "backslashreplace",
        line_buffering=descriptor == 2 or os.isatty(descriptor) or getattr(known, "write_through", False),
    )
