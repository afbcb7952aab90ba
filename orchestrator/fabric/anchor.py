"""The process that keeps a run's hub: its network namespace and, without root, its user namespace.

It does nothing but read: an ``echo`` line is answered, which shows that it has arrived in its namespaces; a
``cgroup PATH`` line is remembered. Its input ends when the orchestrator ends, in order or by SIGKILL; then it
removes the remembered cgroups, which unlike namespaces do not vanish with the last process, and goes.

Standard library only, and run with ``python -I -S``: it starts with every run and lives as long.
"""

from __future__ import annotations

import os
import sys
import time

PATIENCE = 8.0  # s; the nodes' processes are being killed at the same moment


def main() -> None:
    groups: list[str] = []
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "echo":
            print(rest, flush=True)
        elif word == "cgroup":
            groups.append(rest)
    remove(groups, PATIENCE)


def remove(groups: list[str], patience: float) -> list[str]:
    """Remove cgroups, waiting ``patience`` seconds for the processes inside to end; those that are still there."""
    deadline = time.monotonic() + patience
    while groups := [group for group in groups if not removed(group)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return groups


def removed(group: str) -> bool:
    """Remove a cgroup and those below it; False while a process is still inside."""
    for folder, _, _ in os.walk(group, topdown=False):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return not os.path.exists(group)


if __name__ == "__main__":
    main()
