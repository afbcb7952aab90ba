"""`python -m orchestrator.agent work` is the agent in a container. `... serve MODULE [WORD]...` is one that makes
namespaces, at the place that the module of a driver names, see `orchestrator.drivers.hosts.agents.place`. `... task
MODULE [WORD]...` is a task of the driver itself, in the image of agents: ``main`` of that module.

The kernel discards a signal for the first process of a container that has no handler for it. So SIGTERM gets one before
the imports, which take a second. Otherwise a task that is to end would continue, and be killed before it has cleaned
up.
"""

from __future__ import annotations

import signal
import sys

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

import asyncio  # noqa: E402
import importlib  # noqa: E402
import os  # noqa: E402
from pathlib import Path  # noqa: E402

from orchestrator.drivers.hosts.agents.settings import FOLDER, HOST  # noqa: E402
from orchestrator.errors import OrchestratorError  # noqa: E402


def main() -> int:
    arguments = sys.argv[1:]
    command = arguments[0] if arguments else ""
    try:
        if arguments == ["work"]:
            from orchestrator.agent.in_container import make  # imports a second's worth of what the others do not need
            from orchestrator.agent.work import work

            host = os.environ[HOST]
            folder = Path(os.environ[FOLDER])
            return asyncio.run(work(host, folder, make))
        if command == "serve" and len(arguments) > 1:
            from orchestrator.agent.in_namespaces import serve

            place = importlib.import_module(arguments[1]).place
            return asyncio.run(serve(place(*arguments[2:])))
        if command == "task" and len(arguments) > 1:
            code: int = importlib.import_module(arguments[1]).main(arguments[2:])
            return code
    except OrchestratorError as error:
        sys.exit(str(error))
    sys.exit("usage: python -m orchestrator.agent work|serve MODULE [WORD]...|task MODULE [WORD]...")


if __name__ == "__main__":
    sys.exit(main())
