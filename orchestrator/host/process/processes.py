"""Find a run's processes by the labels in their environment, and end them.

Labels are the only state. If a run's orchestrator is gone, `ps` and `down` know only the environments of its living
processes (/proc/<pid>/environ, proc(5)). Any user can write any label. So a process counts as the run's only if it
carries the token of the run's directory, or if this user owns it and is not root.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.host.kernel.small_files import text_of
from orchestrator.record.directory import RunDirectory

TRACKER = "tracker"  # the part of processes that outlive the run for a moment, and then end by themselves
PART = "EDGEBED_PART"  # the variable
TOKEN = "EDGEBED_TOKEN"  # the variable; its value must never be on a command line, which every user can read

_PR_SET_PDEATHSIG = 1  # prctl(2)
_libc = ctypes.CDLL(None)


def end_with(parent: int) -> None:
    """Make the kernel kill this process when the thread of its parent that started it ends (prctl(2), on Linux only).
    End it if the parent ended before."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


@dataclass(frozen=True)
class RunProcess:
    """A living process of a run. For a node's process, ``command`` is the node's name."""

    pid: int
    run: str
    directory: Path
    part: str
    command: str


def run_processes(run: str | None = None) -> list[RunProcess]:
    """This user's processes of one run, or of all runs, without zombies."""
    processes = list(_labelled())
    if run is None:
        return processes
    return [process for process in processes if process.run == run]


def pids_of(run: str) -> list[int]:
    """The ids of this user's processes of a run, but for this process."""
    own = os.getpid()
    return [process.pid for process in run_processes(run) if process.pid != own]


def _labelled() -> Iterator[RunProcess]:
    for entry in Path("/proc").glob("[0-9]*"):  # none where there is no /proc, such as on macOS
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:  # the process has ended, or belongs to another user
            continue
        if b"EDGEBED_RUN=" not in environment:
            continue
        variables = _variables(environment)
        part = variables.get(PART)
        if part is None:
            continue
        run = variables.get("EDGEBED_RUN", "")
        directory = Path(variables.get("EDGEBED_DIRECTORY", ""))
        token = variables.get(TOKEN, "")
        if _is_ours(entry, run, RunDirectory(directory), token):
            yield RunProcess(
                pid=int(entry.name),
                run=run,
                directory=directory,
                part=part,
                command=text_of(entry / "comm") or "",
            )


def _variables(environment: bytes) -> dict[str, str]:
    """The variables of edgebed in the environment of a process."""
    variables = {}
    for item in environment.split(b"\0"):
        name, _, value = item.partition(b"=")
        if not name.startswith(b"EDGEBED_"):
            continue
        variables[os.fsdecode(name)] = os.fsdecode(value)
    return variables


def _is_ours(
    process: Path,
    run: str,
    directory: RunDirectory,
    token: str,
) -> bool:
    if os.geteuid() != 0:
        with contextlib.suppress(OSError):
            owner = process.stat().st_uid
            if owner == os.geteuid():
                return True
    return directory.run == run and directory.knows(token)


def labels(run: str, directory: Path, part: str) -> dict[str, str]:
    """The environment variables that mark a process as the run's. `ps` and `down` find processes by them."""
    token = RunDirectory(directory).token()
    return {
        "EDGEBED_RUN": run,
        "EDGEBED_DIRECTORY": str(directory),
        PART: part,
        TOKEN: token,
    }


def end(
    processes: list[RunProcess],
    grace: float = 5.0,
    patience: float = 0.0,
) -> list[RunProcess]:
    """Send SIGKILL to these processes and wait for their end. Returns those that still live after ``grace`` seconds.
    Processes that end by themselves within ``patience`` seconds get no signal. A pidfd (pidfd_open(2)) refers to one
    process for ever, so a reused id never hits another process."""
    watched: dict[int, RunProcess] = {}
    for process in processes:
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(process.pid)
            watched[descriptor] = process
    _wait(watched, patience)
    living = set(run_processes())
    for descriptor, process in watched.items():
        with contextlib.suppress(OSError):
            if process in living:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    _wait(watched, grace)
    for descriptor in watched:
        os.close(descriptor)
    return list(watched.values())


def _wait(watched: dict[int, RunProcess], seconds: float) -> None:
    """Wait for the end of processes, by their pidfds. Closes and removes those that ended."""
    poller = select.poll()
    for descriptor in watched:
        poller.register(descriptor, select.POLLIN)
    deadline = time.monotonic() + seconds
    while watched:
        left = deadline - time.monotonic()
        if left <= 0:
            return
        for descriptor, _ in poller.poll(left * 1000):
            poller.unregister(descriptor)
            os.close(descriptor)
            del watched[descriptor]
