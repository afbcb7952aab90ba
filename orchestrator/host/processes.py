"""Find a run's processes by the label in their environment, and end them.

Labels are the only state: what a fresh `ps` or `down` knows of a run whose orchestrator is gone is what the kernel
tells about living processes (/proc/<pid>/environ, proc(5)). Anybody can write any label: a process is the run's if it
carries the token of the run's directory, or if it is this user's own, who is not root.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.host.directory import RunDirectory

TOKEN = "EDGEBED_TOKEN"  # the variable; its value must not be seen on a command line, which everybody can read


@dataclass(frozen=True)
class RunProcess:
    """A living process that belongs to a run. ``command`` is the node's name for a node's process."""

    pid: int
    run: str
    directory: Path
    part: str
    command: str


def run_processes(run: str | None = None) -> list[RunProcess]:
    """Every process of one run, or of all runs, that is this user's; zombies left out."""
    return [process for process in _labelled() if run is None or process.run == run]


def _labelled() -> Iterator[RunProcess]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
            if b"EDGEBED_RUN=" not in environment:
                continue
            command = (entry / "comm").read_text().strip()
        except OSError:  # ended meanwhile, or somebody else's
            continue
        label = dict(item.partition(b"=")[::2] for item in environment.split(b"\0"))
        if b"EDGEBED_PART" in label:
            run, directory, part, token = (
                os.fsdecode(label.get(b"EDGEBED_" + key, b"")) for key in (b"RUN", b"DIRECTORY", b"PART", b"TOKEN")
            )
            if _is_ours(entry, run, RunDirectory(Path(directory)), token):
                yield RunProcess(int(entry.name), run, Path(directory), part, command)


def _is_ours(process: Path, run: str, directory: RunDirectory, token: str) -> bool:
    if os.geteuid() != 0:
        with contextlib.suppress(OSError):
            if process.stat().st_uid == os.geteuid():
                return True
    return directory.run == run and directory.knows(token)


def labels(run: str, directory: Path, part: str) -> dict[str, str]:
    """The environment that marks a process as the run's: `ps` and `down` find processes by it."""
    token = RunDirectory(directory).token()
    return {"EDGEBED_RUN": run, "EDGEBED_DIRECTORY": str(directory), "EDGEBED_PART": part, TOKEN: token}


def end(processes: list[RunProcess], grace: float = 5.0) -> list[RunProcess]:
    """SIGKILL these processes and wait until they are gone; returns those that are still there after ``grace``.

    A pidfd (pidfd_open(2)) holds on to the very process, so that a reused id never hits another.
    """
    watched: dict[int, RunProcess] = {}
    for process in processes:
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(process.pid)
            watched[descriptor] = process
            if process in run_processes(process.run):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    poller = select.poll()
    for descriptor in watched:
        poller.register(descriptor, select.POLLIN)
    deadline = time.monotonic() + grace
    while watched and (left := deadline - time.monotonic()) > 0:
        for descriptor, _ in poller.poll(left * 1000):
            poller.unregister(descriptor)
            os.close(descriptor)
            del watched[descriptor]
    for descriptor in watched:
        os.close(descriptor)
    return list(watched.values())
