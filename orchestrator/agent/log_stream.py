"""What is new in the files of a run since they were last read: the output of nodes, and their checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from node.files import open_untrusted
from orchestrator.drivers.hosts.agents.channel import PIECE


class LogStream:
    """The logs in ``folder``. Each call of ``read`` yields what came since the call before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, int] = {}  # bytes, by log

    def read(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name of each log with new bytes, and these. It ends although a node prints without end."""
        logs = sorted(self._folder.glob("*.log"))
        for path in logs:
            log = path.stem
            with path.open("rb") as file:
                end = os.fstat(file.fileno()).st_size
                start = self._read.get(log, 0)
                while start < end:
                    file.seek(start)
                    data = file.read(min(PIECE, end - start))
                    self._read[log] = start + len(data)
                    yield log, data
                    start = self._read[log]


class Piece(NamedTuple):
    """A piece of a node's checkpoint. ``last``: the checkpoint is whole with it."""

    node: str
    data: bytes
    first: bool
    last: bool


class CheckpointStream:
    """The checkpoints in the folders of nodes below ``folder``. Each ``read`` yields those that were replaced since. A
    node may put anything into them: anything that is not a file is ignored."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, tuple[int, int]] = {}  # the inode and the time of its last change

    def read(self) -> Iterator[Piece]:
        """Yield the pieces of each new checkpoint in order."""
        checkpoints = sorted(self._folder.glob("*/*.checkpoint"))
        for path in checkpoints:
            try:
                file = open_untrusted(path)
            except OSError:  # it is no file, or has gone
                continue
            with file:
                state = os.fstat(file.fileno())
                version = (state.st_ino, state.st_mtime_ns)
                if self._read.get(path) == version:
                    continue
                self._read[path] = version
                for start in range(0, state.st_size, PIECE):
                    data = file.read(PIECE)
                    last = start + PIECE >= state.st_size
                    yield Piece(path.parent.name, data, start == 0, last)
