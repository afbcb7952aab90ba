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

_PLAIN = str.maketrans(
    {
        **dict.fromkeys("─━╭╮╰╯", "-"),
        "│": "|",
        "·": ".",
        "…": "...",
        "→": "->",
        "–": "-",
    }
)
_LACKING = "edgebed"  # the name of `_replacement` among the handlers of errors
_UNREAD = (errno.EPIPE, errno.EIO, errno.EBADF)  # no reader: it has ended, or the terminal is gone


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
    output = _survivor(1, sys.stdout)
    errors = _survivor(2, sys.stderr)
    sys.stdout = output
    sys.stderr = errors


@contextlib.contextmanager
def reserved_output() -> Iterator[TextIO]:
    """Reserve standard output for the stream that this yields. All other output goes to standard error."""
    known = sys.stdout
    reserved = known
    if isinstance(_raw(known), _Survivor):
        known.flush()
        copy = os.dup(1)
        reserved = _survivor(copy, known)
        os.dup2(2, 1)
    sys.stdout = sys.stderr
    try:
        yield reserved
    finally:
        sys.stdout = reserved


def lost_output() -> OSError | None:
    """Why standard output could not be written, for example a full disk. None if it was written or had no reader."""
    raw = _raw(sys.stdout)
    if not isinstance(raw, _Survivor):
        return None
    error = raw.refused
    if error is None or error.errno in _UNREAD:
        return None
    return error


def _raw(stream: TextIO) -> Any:
    buffer = getattr(stream, "buffer", None)
    return getattr(buffer, "raw", None)


class _Survivor(io.FileIO):
    """A file on which a write never fails. ``refused`` is the first error."""

    refused: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            written = super().write(data)
            while written is None:  # another process has made this file non-blocking
                select.select([], [self], [])
                written = super().write(data)
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
    plain = lacking.translate(_PLAIN)
    return plain.encode("ascii", "replace").decode(), next_one


def _survivor(descriptor: int, known: TextIO | None) -> TextIO:
    file = _Survivor(descriptor, "w", closefd=False)
    encoding = known.encoding if known is not None else "utf-8"
    errors = "backslashreplace" if descriptor == 2 else _LACKING
    terminal = descriptor == 2 or os.isatty(descriptor)
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=encoding,
        errors=errors,
        line_buffering=terminal or getattr(known, "write_through", False),
    )
