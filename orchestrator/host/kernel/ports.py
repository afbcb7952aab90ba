"""Whether a process listens on a TCP port, read from the kernel's tables. Nothing is sent."""

from __future__ import annotations

from pathlib import Path

LISTENING = "0A"  # TCP_LISTEN in net/tcp_states.h


def listens(process: int, port: int, proc: Path = Path("/proc")) -> bool:
    """Whether a process in the network namespace of ``process`` listens on a TCP port; False if that has ended."""
    wanted = f":{port:04X}"
    for name in ("tcp", "tcp6"):
        try:
            rows = (proc / str(process) / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            _, local, _, state, *_ = row.split()
            if state == LISTENING and local.endswith(wanted):
                return True
    return False
