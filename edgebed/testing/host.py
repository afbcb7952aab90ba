"""What a run has on this host, and waiting for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from orchestrator.host.kernel.cgroups import left_behind
from orchestrator.host.process.processes import run_processes

__all__ = ["traces_of", "wait_for"]

LONGEST_PAUSE = 0.5  # s between two questions, see `wait_for`

T = TypeVar("T")


def wait_for(
    question: Callable[[], T | None],
    what: str,
    timeout: float = 60.0,
) -> T:
    """Repeat a question until it has an answer. Most of the time is left to what is waited for, because many questions
    start processes. AssertionError with ``what`` after ``timeout`` s."""
    deadline = time.monotonic() + timeout
    began = time.monotonic()
    while began < deadline:
        answer = question()
        if answer is not None:
            return answer
        took = time.monotonic() - began
        pause = max(0.02, 4 * took)
        time.sleep(min(pause, LONGEST_PAUSE))
        began = time.monotonic()
    raise AssertionError(f"waited {timeout:.0f} s for {what}")


def traces_of(run: str) -> list[str]:
    """What a run has left on this host: processes and cgroups. Namespaces and interfaces end with the processes."""
    processes = [f"{process.pid} {process.command}" for process in run_processes(run)]
    groups = [str(group) for group in left_behind(run)]
    return processes + groups
