"""Read a log file, and follow the text that is added to it."""

from __future__ import annotations

import codecs
import errno
import io
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from node.files import open_untrusted
from orchestrator.errors import RunError
from orchestrator.record.directory import RunDirectory

LOOK_EVERY = 0.1  # s
LAST_LINE = 4096  # bytes at the end of a log in which the last line is looked for


def open_log(path: Path) -> io.BufferedReader:
    """Open a log of a run. OSError for links, pipes and other things that a node may have put there."""
    if path.parent.is_symlink():
        raise OSError(errno.EINVAL, "its folder is a symbolic link", str(path))
    return open_untrusted(path)


def log_of(directory: RunDirectory, node: str) -> Path:
    """The log of one node or helper process of a run."""
    path = directory.logs / f"{node}.log"
    if os.path.exists(path):
        return path
    files = directory.logs.glob("*.log")
    known = sorted(file.stem for file in files)
    if known:
        logs = f"it has: {', '.join(known)}"
    else:
        logs = "it has none yet"
    raise RunError(f"run {directory.run} has no log of '{node}'; {logs}")


def end_of(path: Path, most: int, start: int = 0) -> str:
    """The last ``most`` bytes of a log, from byte ``start`` on; empty if it cannot be read."""
    try:
        with open_log(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - most))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def last_line(path: Path, start: int = 0) -> str:
    """The last line of a log that is not blank, from byte ``start`` on; empty if there is none."""
    lines = end_of(path, LAST_LINE, start).split("\n")
    for line in reversed(lines):
        text = line.strip()
        if text:
            return text
    return ""


def with_last_line(said: str, path: Path, start: int = 0) -> str:
    """A sentence about a process that ended, and the last line of its log, see `last_line`."""
    line = last_line(path, start)
    if not line:
        return said
    return f"{said}; its log ends with: {line}"


def size(path: Path) -> int:
    """The size of a log in bytes; 0 if it does not exist."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def follow_file(path: Path, go_on: Callable[[], bool]) -> Iterator[str]:
    """Yield the file's text, then added text, until ``go_on`` returns False and all is read. RunError if unreadable."""
    try:
        opened = open_log(path)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    utf8 = codecs.getincrementaldecoder("utf-8")("replace")
    decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
    with opened as file:
        while True:
            last = not go_on()
            data = file.read()
            text = decoder.decode(data, final=last)
            if text:  # a character may have been written in part
                yield text
            if last:
                return
            if not text:
                time.sleep(LOOK_EVERY)
