"""Guests that run tests. They boot as the guests of `edgebed up --virtual` do, see `orchestrator.drivers.virtual`."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.drivers.virtual import guest
from orchestrator.drivers.virtual.kernel import needed_kernel
from tests import programs
from tests.e2e.harness import ROOT, memory_directory

MEMORY = 2_000_000_000  # bytes, of which the host gives what is used
SEED = 1  # of the guest's random numbers
RESULTS = "EDGEBED_LAB"
"""In a guest: the folder that it shares with the host."""


@dataclass(frozen=True)
class Guest:
    """One that has started and has until ``deadline``, on the monotonic clock. ``log``: what its console shows."""

    process: subprocess.Popen[bytes]
    log: Path
    deadline: float

    def console(self) -> str:
        """Wait for its end. Returns all that its console has shown."""
        late = ""
        try:
            self.process.wait(max(0.0, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            late = "\nthe guest did not end in time"
        self.end()
        return self.log.read_text(errors="replace") + late

    def end(self) -> None:
        """Kill it with all its processes, also where its first one has ended by itself."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def booted(place: Path, arguments: Sequence[str], seconds: float, *, virtual: bool = True) -> Iterator[Guest]:
    """A guest in which pytest runs with these arguments. It is killed after so many seconds of the host.

    ``place``: an empty folder. The guest writes to ``shared(place)``. ``virtual``: its clock jumps from timer to timer.
    HostError without a kernel.
    """
    folder = shared(place)
    folder.mkdir(mode=0o700)
    variables = [f"{RESULTS}={folder}"]
    if os.environ.get(programs.CI):
        variables.append(f"{programs.CI}=1")
    argv = ["env", f"--chdir={ROOT}", *variables, sys.executable, "-m", "tests.lab.guest", *arguments]
    guest.write_script(folder, os.environ, SEED, argv)
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)  # the guest has each file that it knows open on the host
    command = ["prlimit", f"--nofile={files}", *guest.boot_command(needed_kernel(), MEMORY, virtual=virtual)]
    environment = {
        **os.environ,
        "EDGEBED_RANDOM_SEED": str(SEED),
        "TMPDIR": str(memory_directory(MEMORY)),
    }
    log = place / "console.log"
    with log.open("wb") as console:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            env=environment,
            cwd=folder,
            start_new_session=True,  # a guest is many processes of the host: one group, to be ended together
        )
    started = Guest(process, log, time.monotonic() + seconds)
    try:
        yield started
    finally:
        started.end()


def shared(place: Path) -> Path:
    """The folder that a guest and the host share."""
    return place / guest.FOLDER
