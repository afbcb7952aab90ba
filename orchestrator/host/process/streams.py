"""Standard input, output and error, made safe so that a run does not depend on the readers of its output."""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_PLAIN = str.maketrans({**dict.fromkeys("─━╭╮╰╯", "-"), "│": "|", "·": ".", "…": "...", "→": "->", "–": "-"})
_LACKING = "edgebed"  # the name of `_replacement` among the handlers of errors
_UNREAD = (errno.EPIPE, errno.EIO, errno.EBADF)  # nobody reads: the reader has ended, or the terminal is gone


def survive_readers() -> None:
    """Replace the standard streams by streams on which a write never fails. Output that cannot be written is dropped. A
    closed standard stream becomes /dev/null. Otherwise the next opened file would get its descriptor."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor
            os.set_inheritable(descriptor, True)
    codecs.register_error(_LACKING, _replacement)
    sys.stdout, sys.stderr = _survivor(1, sys.stdout), _survivor(2, sys.stderr)


@contextlib.contextmanager
def reserved_output() -> Iterator[TextIO]:
    """Reserve standard output for the stream that this yields. All other output goes to standard error."""
    reserved = known = sys.stdout
    if isinstance(_raw(known), _Survivor):
        known.flush()
        reserved = _survivor(os.dup(1), known)
        os.dup2(2, 1)
    sys.stdout = sys.stderr
    try:
        yield reserved
    finally:
        sys.stdout = reserved


def lost_output() -> OSError | None:
    """Why standard output could not be written, for example a full disk. None if it was written or had no reader."""
    raw = _raw(sys.stdout)
    error = raw.refused if isinstance(raw, _Survivor) else None
    return None if error is None or error.errno in _UNREAD else error


def _raw(stream: TextIO) -> Any:
    return getattr(getattr(stream, "buffer", None), "raw", None)


class _Survivor(io.FileIO):
    """A file on which a write never fails. ``refused`` is the first error."""

    refused: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            while (written := super().write(data)) is None:  # another process has made this file non-blocking
                select.select([], [self], [])
            return written
        except OSError as error:
            self.refused = self.refused or error
            return memoryview(data).nbytes


def _replacement(error: UnicodeError) -> tuple[str | bytes, int]:
    """What stands for a character that the encoding of a stream lacks. A byte of a name that is no text stays."""
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start]
    next_one = error.start + 1
    if "\udc80" <= lacking <= "\udcff":
        return lacking.encode("ascii", "surrogateescape"), next_one
    return lacking.translate(_PLAIN).encode("ascii", "replace").decode(), next_one


def _survivor(descriptor: int, known: TextIO | None) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(_Survivor(descriptor, "w", closefd=False)),
        encoding=known.encoding if known is not None else "utf-8",
        errors="backslashreplace" if descriptor == 2 else _LACKING,
        line_buffering=descriptor == 2 or os.isatty(descriptor) or getattr(known, "write_through", False),
    )
