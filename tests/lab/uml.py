"""User-mode Linux: a kernel with sch_netem that runs as an ordinary process, where the host's own kernel has none.

The guest is Debian's kernel (package user-mode-linux), its files are the host's (hostfs), its one processor is a
thread of the host's. It computes as fast as the host; system calls and page faults are some ten times slower.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

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


def run_pytest(results: Path, arguments: Sequence[str], seconds: float) -> str:
    """Boot a guest, run pytest with these arguments in it for at most so long; all that its console showed.

    In the guest, EDGEBED_LAB names the directory `results`. Nothing is left running, whatever happens.
    """
    log = results / "console.log"
    (results / "arguments").write_text("\n".join(arguments))
    command = [
        *_first_of_all(),
        *(KERNEL, f"mem={MEMORY >> 20}M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"),
        *(["CI=true"] if "CI" in os.environ else []),  # which the kernel hands to its first process
        *(f"uml_dir={results}/", "con=null", "con0=fd:0,fd:1", f"init={sys.executable}"),
        *("--", str(_GUEST), str(results), str(seconds)),
    ]
    with log.open("wb") as console:
        guest = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # its end is the guest's
            stdout=console,
            stderr=console,
            env={**os.environ, "TMPDIR": _memory_directory()},
            start_new_session=True,  # a guest is many processes of the host: one group, to be ended together
        )
        try:
            guest.wait(BOOT + seconds)
        except subprocess.TimeoutExpired:
            console.write(f"\nthe guest did not end within {BOOT + seconds:.0f} s".encode())
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(guest.pid, signal.SIGKILL)
            guest.wait()
            assert guest.stdin is not None
            guest.stdin.close()
    return log.read_text(errors="replace")


def _first_of_all() -> list[str]:
    """The words that run a guest before everything else, where that is allowed: what it measures is then its own, and
    not that of a busy host."""
    first = ["chrt", "--fifo", "1"]
    allowed = (
        shutil.which(first[0]) and subprocess.run([*first, "true"], capture_output=True, check=False).returncode == 0
    )
    return first if allowed else []


def _memory_directory() -> str:
    """Where the guest's memory is kept as a file: in memory, unless too little is allowed there (containers: 64 MB)."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage("/dev/shm").free > 2 * MEMORY:
            return "/dev/shm"
    return tempfile.gettempdir()
