"""The output of nodes and programs on its way into their logs: read in pieces, and stored up to a limit."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from orchestrator.drivers.printed import MARK, Lines

LARGEST = 64 << 20  # bytes of a log that are kept whole, so that a node that prints without end fills no disk
CUT = MARK + '{{"event": "note", "text": "the log {} has reached its limit of {} bytes: {}"}}\n'
LINES_ONLY = "of what follows it has the lines for the record only"
NOTHING = "what follows is lost, with the lines for the record"
PIECE = 1 << 16  # bytes of one read, between other work


class OutputLog:
    """A log of at most twice ``largest`` bytes: up to ``largest`` all output, then only the lines for the record. Two
    lines in the log, which become notes in the record, say so."""

    def __init__(self, log: Path, largest: int = LARGEST) -> None:
        self._name = log.stem
        self._largest = largest
        self._most = 2 * largest
        self._file = log.open("ab", buffering=0)
        self._size = self._file.tell()
        self._lines = Lines()
        self._full = self._size >= largest
        self._ends_a_line = True

    def write(self, data: bytes) -> None:
        """Append a piece of output."""
        if not self._full:
            data = self._fill(data)
        if data and self._size < self._most:
            self._append_lines(self._lines.add(data, MARK))
            if self._size >= self._most:
                self._note(NOTHING)

    def _fill(self, data: bytes) -> bytes:
        """Append output up to the limit. Returns what is beyond it, which the log then says."""
        left = self._largest - self._size
        if len(data) <= left:
            self._append(data)
            return b""
        end = data.rfind(b"\n", 0, left) + 1  # after the last whole line
        if end == 0:
            end = left
        self._append(data[:end])
        self._full = True
        if not self._ends_a_line:
            self._append(b"\n")
        self._note(LINES_ONLY)
        return data[end:]

    def end(self) -> None:
        """Append the last line, if it is for the record. It counts without a newline."""
        if self._size < self._most:
            lines = [line for line in self._lines.end() if MARK in line]
            self._append_lines(lines)

    def close(self) -> None:
        self.end()
        self._file.close()

    def _append_lines(self, lines: Iterable[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        self._append(text.encode())

    def _note(self, what: str) -> None:
        note = CUT.format(self._name, self._size, what)
        self._append(note.encode())

    def _append(self, data: bytes) -> None:
        if not data:
            return
        self._file.write(data)
        self._size += len(data)
        self._ends_a_line = data.endswith(b"\n")


def copy_output(output: Iterable[bytes], log: Path, largest: int = LARGEST) -> None:
    """Append ``output`` to a log until it ends."""
    with contextlib.closing(OutputLog(log, largest)) as kept:
        for piece in output:
            kept.write(piece)


class Pipe:
    """A named pipe at ``path`` into which a program prints, and which the event loop copies into a log. One piece is
    read at a time, and other work continues between them. A program that prints faster waits for its reader, as at any
    pipe. A program opens the pipe as a file, and may open it again (/dev/stdout). ``copied`` is called after each
    piece."""

    def __init__(
        self,
        path: Path,
        log: Path,
        copied: Callable[[], object] = lambda: None,
    ) -> None:
        os.mkfifo(path, 0o600)
        self._pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.path = path
        self._log = OutputLog(log)
        self._copied = copied
        self._closed = False

    def start(self) -> None:
        """Copy from now on. The program has opened the pipe. If it has ended already, its output is copied."""
        if self._closed:
            return
        self.path.unlink()
        asyncio.get_running_loop().add_reader(self._pipe, self._copy)

    def drain(self) -> None:
        """Copy only the present content of the pipe: a process that the program has left may print without end."""
        if self._closed:
            return
        left = fcntl.fcntl(self._pipe, fcntl.F_GETPIPE_SZ)
        while left > 0:
            copied = self._copy()
            if not copied:
                break
            left -= copied
        if not self._closed:
            self._log.end()

    def close(self) -> None:
        self.drain()
        self._end()

    def _copy(self) -> int:
        """Copy a piece. Returns its bytes; 0 if the pipe is empty, or if no process has it open any more."""
        try:
            data = os.read(self._pipe, PIECE)
        except BlockingIOError:
            return 0
        if data:
            self._log.write(data)
            self._copied()
        else:
            self._end()
        return len(data)

    def _end(self) -> None:
        if not self._closed:
            self._closed = True
            asyncio.get_running_loop().remove_reader(self._pipe)
            os.close(self._pipe)
            self._log.close()
            self.path.unlink(missing_ok=True)
