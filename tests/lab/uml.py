"""User-mode Linux: a kernel with sch_netem that runs as an ordinary process, where the host's own kernel has none.

The guest is Debian's kernel (package user-mode-linux), its files are the host's (hostfs), its one processor is a
thread of the host's. It computes as fast as the host; system calls and page faults are some ten times slower.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.harness import memory_directory

KERNEL = "linux.uml"
PACKAGES = "user-mode-linux kmod iproute2 util-linux mount"
MEMORY = 1536 << 20  # of which the host gives what is used
BOOT = 30.0  # s; measured: 2
ROOT = Path(__file__).resolve().parents[2]
_GUEST = Path(__file__).with_name("guest.py")


def missing() -> str:
    """What keeps this host from running a guest, and the remedy; empty if nothing does."""
    absent = [tool for tool in (KERNEL, "modprobe", "ip", "tc", "nsenter", "mount") if shutil.which(tool) is None]
    if not absent:
        return ""
    return f"{', '.join(absent)} not found: apt-get install --no-install-recommends {PACKAGES}"


@functools.cache
def unfit() -> str:
    """Why no guest can run on this processor, found by booting one for a moment; empty if it can.

    The kernel of a guest hands back all registers of its processes at once (ptrace(2), NT_X86_XSTATE). Its buffer is
    smaller than those of processors with AMX. The host's kernel refuses that, and the guest's first process dies.
    """
    command = [KERNEL, "mem=64M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "init=/bin/true"]
    with tempfile.TemporaryDirectory(prefix="edgebed-lab-") as name:
        said = subprocess.run(
            [*command, f"uml_dir={name}/", "con=null", "con0=null,fd:1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=BOOT,
            check=False,
        ).stdout
    if b"set fp regs failed" not in said:
        return ""
    return "user-mode Linux cannot run on this processor: it has more registers than the guest's kernel can hand back"


def run_pytest(results: Path, arguments: Sequence[str], seconds: float) -> str:
    """Boot a guest, run pytest with these arguments in it for at most so long; all that its console showed."""
    with booted(results, arguments, seconds) as guest:
        return guest.console()


@contextlib.contextmanager
def booted(results: Path, arguments: Sequence[str], seconds: float, *, first: bool = False) -> Iterator[Guest]:
    """A guest in which pytest runs with these arguments, for at most so long; it is over when its console is asked for.

    In the guest, EDGEBED_LAB names the directory `results`. `first`: before everything else on the host, where that is
    allowed: what is measured is then the guest's own, and not that of a busy host. Nothing is left running, whatever
    happens.
    """
    (results / "arguments").write_text("\n".join(arguments))
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)  # each file that the guest knows is open on the host
    command = [
        *("prlimit", f"--nofile={files}"),
        *(_first_of_all() if first else []),
        *(KERNEL, f"mem={MEMORY >> 20}M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"),
        *(["CI=true"] if "CI" in os.environ else []),  # which the kernel hands to its first process
        *(f"uml_dir={results}/", "con=null", "con0=fd:0,fd:1", f"init={sys.executable}"),
        *("--", str(_GUEST), str(results), str(seconds)),
    ]
    log = results / "console.log"
    with log.open("wb") as console:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # its end is the guest's
            stdout=console,
            stderr=console,
            env={**os.environ, "TMPDIR": str(memory_directory(MEMORY))},
            start_new_session=True,  # a guest is many processes of the host: one group, to be ended together
        )
        guest = Guest(process, log, time.monotonic() + BOOT + seconds)
        try:
            yield guest
        finally:
            guest.end()


@dataclass(frozen=True)
class Guest:
    """One that has been started and has until `deadline`, on the monotonic clock."""

    process: subprocess.Popen[bytes]
    log: Path
    deadline: float

    def console(self) -> str:
        """All that it showed, once it has ended."""
        try:
            self.process.wait(max(0.0, self.deadline - time.monotonic()))
            late = ""
        except subprocess.TimeoutExpired:
            late = "\nthe guest did not end in time"
        self.end()
        return self.log.read_text(errors="replace") + late

    def end(self) -> None:
        """End it with all its processes, also where its first one has ended by itself."""
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process.stdin.close()


def _first_of_all() -> list[str]:
    """The words that run a guest before everything else, where that is allowed."""
    first = ["chrt", "--fifo", "1"]
    allowed = (
        shutil.which(first[0]) and subprocess.run([*first, "true"], capture_output=True, check=False).returncode == 0
    )
    return first if allowed else []
