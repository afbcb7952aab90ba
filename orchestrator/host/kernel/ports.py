"""Whether a process listens on a TCP port, read from the kernel's tables. Nothing is sent."""

from __future__ import annotations

from pathlib import Path

from orchestrator.host.kernel.small_files import text_of

LISTENING = "0A"  # TCP_LISTEN in net/tcp_states.h


def listens(process: int, port: int, proc: Path = Path("/proc")) -> bool:
    """Whether a process in the network namespace of ``process`` listens on a TCP port; False if that has ended."""
    wanted = f":{port:04X}"
    for name in ("tcp", "tcp6"):
        for row in (text_of(proc / str(process) / "net" / name) or "").splitlines()[1:]:
            _, local, _, state, *_ = row.split()
            if state == LISTENING and local.endswith(wanted):
                return True
    return False
