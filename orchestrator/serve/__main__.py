"""The process that serves the page of a run: ``python -m orchestrator.serve FOLDER``.

It prints one JSON object with its address, for `orchestrator.serve.beside`, and ends when its standard input closes:
the orchestrator then has ended, for whatever reason.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from orchestrator.errors import OrchestratorError
from orchestrator.serve.server import NICE, Server


def main(arguments: list[str]) -> int:
    """Serve until standard input ends. Returns the exit code."""
    os.nice(NICE)
    (folder,) = arguments
    try:
        with Server(Path(folder)) as server:
            greeting = {"address": server.address_of()}
            print(json.dumps(greeting), flush=True)
            sys.stdin.read()
    except OrchestratorError as error:
        failure = {"error": str(error)}
        print(json.dumps(failure), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
