"""`python -m orchestrator.agent serve` is the task of the service, `... work` the container that it starts. `... sweep`
removes what a run has left, and with `data` the data sets that the host keeps. `... job DIRECTORY` is the task of a
Slurm job's step, for the run of this directory, and `... pod` that of a pod of Kubernetes.

The kernel discards a signal for the first process of a container that has no handler for it. So SIGTERM gets one before
the imports, which take a second. Otherwise a task that is to end would continue, and be killed before it has cleaned
up.
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
    arguments = sys.argv[1:]
    command = arguments[0] if arguments else ""
    try:
        if arguments == ["serve"]:
            from orchestrator.agent.container import serve

            return serve()
        if arguments in (["sweep"], ["sweep", "data"]):
            from orchestrator.agent.container import sweep

            return sweep(data=len(arguments) > 1)
        if arguments == ["work"]:
            from orchestrator.agent.in_container import make  # imports a second's worth of what the other does not need
            from orchestrator.agent.work import work

            host = os.environ[HOST]
            folder = Path(os.environ[FOLDER])
            return asyncio.run(work(host, folder, make))
        if command == "job" and len(arguments) == 2:
            from orchestrator.agent.in_namespaces import serve_job

            directory = Path(arguments[1])
            return asyncio.run(serve_job(directory))
        if arguments == ["pod"]:
            from orchestrator.agent.in_namespaces import serve_pod

            return asyncio.run(serve_pod())
    except OrchestratorError as error:
        sys.exit(str(error))
    sys.exit("usage: python -m orchestrator.agent serve|work|sweep [data]|job DIRECTORY|pod")


if __name__ == "__main__":
    sys.exit(main())
