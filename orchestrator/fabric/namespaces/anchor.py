"""The anchor process, which keeps a run's hub alive: its network namespace and, without root, its user namespace.

It only reads lines. It answers an ``echo`` line, which shows that it is in its namespaces, and remembers a
``cgroup PATH`` line. Its input ends when the orchestrator ends, normally or by SIGKILL. Then it removes the remembered
cgroups, because cgroups, unlike namespaces, do not disappear with their last process, and exits.

It uses only the standard library and runs with ``python -I -S``, because every run starts one and keeps it to the end.
"""

from __future__ import annotations

import os
import sys
import time

PATIENCE = 8.0  # s; the nodes' processes are killed at the same time


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
    """Remove cgroups; wait up to ``patience`` seconds for their processes to end. Returns the cgroups that remain."""
    deadline = time.monotonic() + patience
    remaining = groups
    while True:
        remaining = [group for group in remaining if not removed(group)]
        if not remaining or time.monotonic() > deadline:
            return remaining
        time.sleep(0.05)


def removed(group: str) -> bool:
    """Remove a cgroup and its descendants; False while a process is still inside."""
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
