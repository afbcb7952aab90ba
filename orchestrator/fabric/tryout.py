"""Try the kernel's netem out, by effect: `python -m orchestrator.fabric.tryout`, run inside the hub, prints JSON.

Asking for a version tells little: modules are missing or refused, and one combination of kernel and tc takes a
delay and ignores it. So a delay is put on the hub's own loopback, which nothing else uses, and a datagram timed.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time

DELAY = 0.02  # s
TIMEOUT = 1.0


def try_netem() -> dict[str, bool | str]:
    """Whether netem delays here, whether it takes a seed, and in words why not."""
    _tc("ip", "link", "set", "lo", "up")
    _tc("tc", "qdisc", "del", "dev", "lo", "root")
    added = _tc("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", f"{DELAY * 1000:.0f}ms")
    if added:
        return {"netem": False, "seed": False, "reason": f"tc refused netem: {added}"}
    took = _one_way()
    seed = not _tc("tc", "qdisc", "change", "dev", "lo", "root", "netem", "delay", "1ms", "seed", "1")
    _tc("tc", "qdisc", "del", "dev", "lo", "root")
    if took < DELAY * 0.9:
        reason = f"tc took a delay of {DELAY * 1000:.0f} ms and a packet needed {took * 1000:.2f} ms"
        return {"netem": False, "seed": seed, "reason": reason}
    return {"netem": True, "seed": seed, "reason": ""}


def _tc(*argv: str) -> str:
    """Run a command; what it complained of, empty if it succeeded."""
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    return "" if result.returncode == 0 else result.stderr.strip() or f"exit code {result.returncode}"


def _one_way() -> float:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(TIMEOUT)
        started = time.perf_counter()
        sender.sendto(b"?", receiver.getsockname())
        try:
            receiver.recv(1)
        except TimeoutError:
            return 0.0
        return time.perf_counter() - started


if __name__ == "__main__":
    print(json.dumps(try_netem()))
