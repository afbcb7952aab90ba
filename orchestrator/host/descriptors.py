"""Open files: how many a run needs is known before it begins, and asked of the host before anything is made."""

from __future__ import annotations

import resource
from collections import Counter

from orchestrator.errors import HostError
from orchestrator.planning.plan import Plan

FIRST = 64  # of a process of a run with nobody to talk to, and some to spare: at most 40 were counted
OF_A_PEER = 3  # at a node: a connection each way, and what ZeroMQ signals itself with
OF_A_CONTAINER = 3  # at the orchestrator: its output, its control connection, a request to the Engine
OF_A_WORKER = 4  # of a simulation


def needed(plan: Plan, workers: int) -> int:
    """The most files that one process of the run has open: the orchestrator, the switch or the node with most peers."""
    if plan.driver == "sim":
        return FIRST + OF_A_WORKER * workers
    peers = Counter(link.source for link in plan.links)
    nodes = len(plan.nodes) * (OF_A_CONTAINER if plan.driver == "docker" else 1)
    return FIRST + max(nodes, OF_A_PEER * max(peers.values(), default=0))


def provide(files: int) -> None:
    """Let this process, and those that it starts, have so many files open: up to the hard limit anybody may go
    (getrlimit(2)). HostError where that is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != hard < files:
        raise HostError(
            f"the run needs {files} open files in one process, and this shell allows {hard}:"
            f" `ulimit -n {files}` as root, or start from another shell"
        )
    if resource.RLIM_INFINITY != soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
