"""The processes of a program in a node: its command, what that has started, and what has left it as a daemon.

Daemons leave the session of their command, and their parent becomes the first process of the node. So each process
inherits a mark in its environment, and the processes of the command's session count too, in case a program clears its
environment.
"""

from __future__ import annotations

import os
from pathlib import Path

MARK = "EDGEBED_PROGRAM"
"""The variable with the program's label in the environment of its processes."""

_ENDED = ("Z", "X")  # states of proc(5): it waits for its parent to read its exit code, or has just ended


def processes_of(program: str, session: int, proc: Path = Path("/proc")) -> list[int]:
    """The ids of a program's running processes, except this one. ``session``: the process id of its command."""
    mark = f"{MARK}={program}".encode()
    processes = []
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        number = int(folder.name)
        if number == os.getpid():
            continue
        try:
            stat = (folder / "stat").read_text()
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue  # it has just ended, or runs as another user
        state, own_session = _state_and_session(stat)
        marked = mark in environment.split(b"\0")
        belongs = marked or own_session == session
        if belongs and state not in _ENDED:
            processes.append(number)
    return processes


def _state_and_session(stat: str) -> tuple[str, int]:
    """The state and the session of a process, from its stat file. Its name, in brackets, may contain anything."""
    after_name = stat.rindex(")") + 1
    fields = stat[after_name:].split()
    return fields[0], int(fields[3])
