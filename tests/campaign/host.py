"""A process that runs each command line in a fork of its own: `python -m tests.campaign.host`.

It imports the modules of a run once, so that a run takes a fraction of a second. PYTHONHASHSEED applies to a whole
process, so hosts with different values reveal results that depend on the order of a set. A job is a line of JSON on
standard input, and its result is a line on standard output.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from node.algorithms.registry import ALGORITHMS
from tests.campaign.case import Interruption

ROOT = Path(__file__).parents[2]
LIMIT = 60.0  # s of the host's time that a run may take
PATIENCE = 5.0  # s after a run in which the processes that it started must end
LONG = (
    "numpy.random",
    "orchestrator.cli.main",
    "orchestrator.run.launch",
    "orchestrator.results.junit",
    "orchestrator.results.summary",
    "orchestrator.drivers.sim.driver",
    "tests.campaign.canaries",
)
"""Modules that take long to import."""
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


@dataclass(frozen=True)
class Ended:
    """The result of a command. ``code``: the exit code as in `subprocess`, None if the command was killed after
    ``LIMIT`` seconds. ``left``: the number of its processes that outlived it and were killed."""

    code: int | None
    wall: float
    left: int
    output: str
    errors: str


class Host:
    """The client of a host process. ``hash_seed`` is the process' PYTHONHASHSEED."""

    def __init__(self, hash_seed: int) -> None:
        environment = os.environ | {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "always", "-m", "tests.campaign.host"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(
        self,
        folder: Path,
        words: Sequence[str | Path],
        interruption: Interruption | None = None,
        planted: str | None = None,
    ) -> None:
        """Start a command; ``planted`` names a defect of `canaries` to plant in it."""
        assert self._process.stdin is not None
        stop = interruption and [interruption.signal, interruption.after, interruption.round]
        job = {"folder": str(folder), "words": [str(word) for word in words], "stop": stop, "planted": planted}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()

    def end(self) -> Ended:
        """Wait for the started command."""
        assert self._process.stdout is not None
        return Ended(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


def serve() -> None:
    """Carry out jobs until the end of the input."""
    for name in (*(algorithm.module for algorithm in ALGORITHMS.values()), *LONG):
        importlib.import_module(name)

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # this process adopts orphans, and counts them
    for line in sys.stdin:
        print(json.dumps(asdict(_carry_out(json.loads(line)))), flush=True)


def _carry_out(job: dict[str, Any]) -> Ended:
    output, errors = (Path(job["folder"]) / name for name in ("stdout", "stderr"))
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _become_command(job, output, errors)
    watched = os.pidfd_open(child)
    in_time = bool(select.select([watched], [], [], LIMIT)[0])
    os.close(watched)
    if not in_time:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status) if in_time else None
    return Ended(code, time.monotonic() - began, _clear(child), output.read_text(), errors.read_text())


def _clear(group: int) -> int:
    """Kill the processes that outlive a command by ``PATIENCE`` seconds; returns their number."""
    deadline, killed = time.monotonic() + PATIENCE, 0
    while True:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return killed
        if ended:
            killed += time.monotonic() > deadline
        elif time.monotonic() > deadline:
            os.killpg(group, signal.SIGKILL)
        else:
            time.sleep(0.005)


def _become_command(job: dict[str, Any], output: Path, errors: Path) -> NoReturn:
    from orchestrator.__main__ import main
    from tests.campaign import canaries

    os.setsid()
    for path, descriptor in ((output, 1), (errors, 2)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, descriptor)
        os.close(opened)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    sys.argv = ["orchestrator", *job["words"]]
    end, itself = os._exit, os.getpid()

    def leave(code: int) -> NoReturn:
        if os.getpid() == itself:
            gc.collect()  # Python warns of a never awaited coroutine when it is collected
            sys.stderr.flush()
        end(code)

    os._exit = leave  # type: ignore[assignment]
    if job["stop"]:
        _stop(*job["stop"])
    try:
        if job["planted"]:
            canaries.CANARIES[job["planted"]].plant()
        main()
    except BaseException as error:
        if isinstance(error, SystemExit) and isinstance(error.code, int):
            leave(error.code)
        sys.excepthook(type(error), error, error.__traceback__)
        leave(1)


def _stop(number: int, seconds: float, round: int) -> None:
    """Send this process a signal ``seconds`` after a round has begun, on the run's own clock."""
    from orchestrator.run.display import snapshot, terminal

    opened = terminal.open_view

    def open_view(**given: Any) -> snapshot.View:
        inner = opened(**given)
        update, waiting = inner.update, True

        def watched(snapshot: snapshot.Snapshot) -> None:
            nonlocal waiting
            update(snapshot)
            if waiting and snapshot.round >= round:
                waiting = False
                asyncio.get_running_loop().call_later(seconds, os.kill, os.getpid(), number)

        inner.update = watched  # type: ignore[method-assign]
        return inner

    terminal.open_view = open_view


if __name__ == "__main__":
    serve()
