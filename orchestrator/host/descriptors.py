"""Open files: as many as a run needs are asked of the host before anything is made."""

from __future__ import annotations

import resource

from orchestrator.errors import HostError


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
