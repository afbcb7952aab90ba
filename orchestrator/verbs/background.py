"""A run in the background: a process of its own, which no terminal ends, with its output in the run's folder."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from orchestrator.errors import OrchestratorError, RecordError
from orchestrator.host.directory import RunDirectory
from orchestrator.host.signals import INTERRUPTED
from orchestrator.results.history import History

LOOK_EVERY = 0.05  # s
OUTPUT = Path("logs/up.log")
"""The output of a run in the background, in its folder."""


class Launcher:
    """The process that starts a run in the background, and waits until the run's nodes can be started."""

    def __init__(self, child: int, told: int) -> None:
        self._child, self._told = child, told

    def wait(self) -> tuple[RunDirectory | None, str | None, int]:
        """The run, or why it could not be started, and its exit code: 0 if it runs. A child that ends before the run
        has a folder prints the reason itself. Ctrl-C ends the child."""
        try:
            return self._wait()
        except KeyboardInterrupt:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGTERM)
            return None, None, self._exit_code()

    def _wait(self) -> tuple[RunDirectory | None, str | None, int]:
        with open(self._told, "rb") as told:
            if not (line := told.readline()):
                return None, None, self._exit_code()
            directory = RunDirectory(Path(json.loads(line)["run"]))
            while not _is_under_way(directory):
                if select.select([told], [], [], LOOK_EVERY)[0]:
                    error = json.loads(told.readline() or "{}").get("error")
                    code = self._exit_code()
                    return (directory, None, 0) if _is_under_way(directory) else (None, error, code)
        return directory, None, 0

    def _exit_code(self) -> int:
        _, status = os.waitpid(self._child, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else INTERRUPTED


class Background:
    """The process of a run in the background. ``outputs``: the descriptors that it prints to."""

    def __init__(self, tell: int, outputs: Iterable[int]) -> None:
        self._tell, self._outputs, self._begun = tell, set(outputs), False

    def begin(self, directory: RunDirectory) -> None:
        """Print to the run's log from now on, and tell the launcher which run it is."""
        log = os.open(directory.path / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        for output in self._outputs:
            os.dup2(log, output, inheritable=output < 3)
        os.close(log)
        self._begun = True
        self._send({"run": str(directory.path)})

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Tell the launcher why a run with a folder could not be started: its log is removed with the folder."""
        try:
            yield
        except OrchestratorError as error:
            if self._begun:
                self._send({"error": str(error)})
            raise

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the launcher waits no more
            os.write(self._tell, json.dumps(message).encode() + b"\n")


def split(outputs: Iterable[int]) -> Launcher | Background:
    """Go on as two processes: the launcher, and the one of the run, in a session of its own, which Ctrl-C and the end
    of the terminal do not reach. Call it while there is one thread."""
    told, tell = os.pipe()
    if child := os.fork():
        os.close(tell)
        return Launcher(child, told)
    os.close(told)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.close(nothing)
    return Background(tell, outputs)


def _is_under_way(directory: RunDirectory) -> bool:
    """Whether the run's links have an engine. Before, this host may still refuse the run, whose folder then goes."""
    try:
        with History.open(directory.path) as history:
            return "engine" in history.meta or history.outcome is not None
    except RecordError:
        return False
