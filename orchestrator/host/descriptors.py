"""The limit of open files, raised to the number that a run needs before anything is made."""

from __future__ import annotations

import resource

from orchestrator.errors import HostError


def provide(files: int) -> None:
    """Let this process and its children have this number of files open. Every user may raise the soft limit up to the
    hard limit (getrlimit(2)). HostError if the hard limit is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != hard < files:
        raise HostError(
            f"the run needs {files} open files in one process, and this shell allows {hard}:"
            f" `ulimit -n {files}` as root, or start from another shell"
        )
    if resource.RLIM_INFINITY != soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
