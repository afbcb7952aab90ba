"""`python -m orchestrator.agent serve` is the task of the service, `... work` the container that it starts. `... sweep`
removes what a run has left, and with `data` the data sets that the host keeps. `... job DIRECTORY` is the task of a
Slurm job's step, for the run of this directory, and `... pod` that of a pod of Kubernetes.

The kernel discards a signal for the first process of a container that has no handler for it. So SIGTERM gets one before
the imports, which take a second: otherwise a task that is to end then goes on, and is killed before it has cleaned up.
"""

from __future__ import annotations

import signal
import sys

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

import asyncio  # noqa: E402
import os  # noqa: E402
from pathlib import Path  # noqa: E402

from orchestrator.drivers.hosts.agents.settings import FOLDER, HOST  # noqa: E402
from orchestrator.errors import OrchestratorError  # noqa: E402


def main() -> int:
    try:
        if sys.argv[1:] == ["serve"]:
            from orchestrator.agent.container import serve

            return serve()
        if sys.argv[1:2] == ["sweep"] and sys.argv[2:] in ([], ["data"]):
            from orchestrator.agent.container import sweep

            return sweep(data=bool(sys.argv[2:]))
        if sys.argv[1:] == ["work"]:
            from orchestrator.agent.in_container import make  # imports a second's worth of what the other does not need
            from orchestrator.agent.work import work

            return asyncio.run(work(os.environ[HOST], Path(os.environ[FOLDER]), make))
        if sys.argv[1:2] == ["job"] and len(sys.argv) == 3:
            from orchestrator.agent.in_namespaces import serve_job

            return asyncio.run(serve_job(Path(sys.argv[2])))
        if sys.argv[1:] == ["pod"]:
            from orchestrator.agent.in_namespaces import serve_pod

            return asyncio.run(serve_pod())
    except OrchestratorError as error:
        sys.exit(str(error))
    sys.exit("usage: python -m orchestrator.agent serve|work|sweep [data]|job DIRECTORY|pod")


if __name__ == "__main__":
    sys.exit(main())
