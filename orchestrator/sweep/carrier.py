"""The program that carries out runs of a sweep on a host: `python -m orchestrator.sweep.carrier HOST RUNS DATA`.

Each line of its input is a run: {"run": ..., "data": ..., "plugins": [...]}, with the names of folders in RUNS and
DATA, and the sources of its plug-ins. Each run has a process of its own, forked from this one, which has loaded what
takes seconds to load. A line of the output that begins with MARK says that this program is ready, {}, or that a run has
ended: {"run": ..., "error": ...}. The error is why this host could not carry it out, or null. Other lines are whatever
libraries and plug-ins print. The program ends at the end of its input, and in a container all runs end with it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from node.assignment import PluginSource
from orchestrator.drivers.swarm.agents.settings import MARK
from orchestrator.errors import OrchestratorError
from orchestrator.host.directory import RunDirectory
from orchestrator.run.remote import carry_out

LONGEST = 500  # characters of an error: a line must be shorter than what a pipe takes in one piece (pipe(7), PIPE_BUF)


def main() -> None:
    host, runs, data = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    import orchestrator.drivers.sim.simulation  # noqa: F401  # before the forks

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    _say({})
    for line in sys.stdin:
        order = json.loads(line)
        if os.fork() == 0:
            _keep(host, runs / order["run"], data / order["data"], order["plugins"])


def _keep(host: str, run: Path, data: Path, plugins: list[Mapping[str, Any]]) -> None:
    """Fork the process of a run, and tell if it is killed. Does not return."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    process = os.fork()
    if process == 0:
        _say({"run": run.name, "error": _carried_out(host, run, data, plugins)})
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code:
        how = f"killed by signal {-code}; is there not enough memory?" if code < 0 else f"ended with exit code {code}"
        _say({"run": run.name, "error": f"the process of the run was {how}"})
    os._exit(0)


def _carried_out(host: str, run: Path, data: Path, plugins: list[Mapping[str, Any]]) -> str | None:
    try:
        carry_out(RunDirectory(run), data, [PluginSource(**each) for each in plugins], host)
    except OrchestratorError as error:
        return str(error)[:LONGEST]
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:LONGEST]
    return None


def _say(message: Mapping[str, Any]) -> None:
    """One write, so that lines of several processes do not mix."""
    sys.stdout.flush()
    os.write(1, f"{MARK}{json.dumps(message)}\n".encode())


if __name__ == "__main__":
    main()
