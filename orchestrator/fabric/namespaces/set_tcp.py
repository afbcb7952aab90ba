"""Sets TCP in the network namespace that it is started in. Then it becomes another command, or prints all TCP
settings. It is run by its path and imports nothing of ours, because it is started for every node.

    python -I -S set_tcp.py NAME=VALUE ... -- [COMMAND ...]
"""

import contextlib
import ctypes
import os
import sys
from pathlib import Path

SETTINGS = Path("/proc/sys/net/ipv4")
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x00020000, 0x4000, 0x40000


def main(given: list[str], command: list[str]) -> None:
    if not os.access(SETTINGS / "tcp_rmem", os.W_OK):
        mount_proc()
    for name, _, value in (each.partition("=") for each in given):
        with contextlib.suppress(OSError):  # a kernel that refuses: what is in force is read afterwards
            (SETTINGS / name).write_text(value)
    if command:
        os.execvp(command[0], command)
    for file in sorted(SETTINGS.glob("tcp_*")):
        with contextlib.suppress(OSError):  # some are for writing only
            print(f"{file.name}:{file.read_text().strip()}")


def mount_proc() -> None:
    """Mount /proc again for this process alone: an Engine makes it read-only in containers, such as an agent's."""
    libc = ctypes.CDLL(None)
    libc.unshare(CLONE_NEWNS)
    libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None)
    libc.mount(b"proc", b"/proc", b"proc", 0, None)


if __name__ == "__main__":
    end = sys.argv.index("--")
    main(sys.argv[1:end], sys.argv[end + 1 :])
