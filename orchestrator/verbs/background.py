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

from orchestrator import text
from orchestrator.errors import OrchestratorError, RecordError
from orchestrator.host.process.signals import INTERRUPTED
from orchestrator.record.directory import RunDirectory
from orchestrator.results.history import History

LOOK_EVERY = 0.05  # s
OUTPUT = Path("logs/up.log")
"""The output of a run in the background, in its folder."""


Result = tuple[RunDirectory | None, str | None, int]
"""The run, or why it could not be started; and its exit code."""


class Launcher:
    """The process that starts a run in the background, and waits until the run's nodes can be started."""

    def __init__(self, child: int, messages: int) -> None:
        self._child = child
        self._messages = messages

    def wait(self) -> Result:
        """The run, or why it could not be started, and its exit code: 0 if it runs. A child that ends before the run
        has a folder prints the reason itself. Ctrl-C ends the child."""
        try:
            return self._wait()
        except KeyboardInterrupt:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGTERM)
            _, code = self._end()
            return None, None, code

    def _wait(self) -> Result:
        with open(self._messages, "rb") as messages:
            line = messages.readline()
            if not line:
                killed, code = self._end()
                return None, killed, code
            message = json.loads(line)
            directory = RunDirectory(Path(message["run"]))
            while not _is_under_way(directory):
                readable = select.select([messages], [], [], LOOK_EVERY)[0]
                if readable:
                    return self._result(directory, messages.readline())
        return directory, None, 0

    def _result(self, directory: RunDirectory, line: bytes) -> Result:
        """The result of a child that has sent its last ``line``, or none, and ends."""
        message = json.loads(line or "{}")
        error = message.get("error")
        killed, code = self._end()
        if _is_under_way(directory):
            return directory, None, 0
        return None, error or killed, code

    def _end(self) -> tuple[str | None, int]:
        """The signal that ended the child, which could not print that, and its exit code."""
        _, status = os.waitpid(self._child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return None, code
        return f"{text.how_ended(code)} ended the run before it started: `ps` shows what is left of it", INTERRUPTED


class Background:
    """The process of a run in the background. ``outputs``: the descriptors that it prints to."""

    def __init__(self, messages: int, outputs: Iterable[int]) -> None:
        self._messages = messages
        self._outputs = set(outputs)
        self._has_folder = False

    def announce(self, directory: RunDirectory) -> None:
        """Leave the terminal: print to the run's log from now on. Send the run to the launcher."""
        to_append = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        log = os.open(directory.path / OUTPUT, to_append, 0o644)
        for output in self._outputs:
            os.dup2(log, output, inheritable=output < 3)
        os.close(log)
        to_read = os.O_RDONLY | os.O_CLOEXEC
        nothing = os.open(os.devnull, to_read)
        os.dup2(nothing, 0)  # the scenario, which may come from there, has been read
        os.close(nothing)
        self._has_folder = True
        self._send({"run": str(directory.path)})

    @contextlib.contextmanager
    def reporting_errors(self) -> Iterator[None]:
        """Send the launcher the error of a run with a folder: its log is removed with the folder."""
        try:
            yield
        except OrchestratorError as error:
            if self._has_folder:
                self._send({"error": str(error)})
            raise

    def _send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        with contextlib.suppress(OSError):  # the launcher has ended
            os.write(self._messages, line)


def split(outputs: Iterable[int]) -> Launcher | Background:
    """Fork: the launcher continues, and the process of the run gets a session of its own, which Ctrl-C and the end of
    the terminal do not reach. Call it while there is one thread."""
    messages, sending = os.pipe()
    child = os.fork()
    if child:
        os.close(sending)
        return Launcher(child, messages)
    os.close(messages)
    os.setsid()
    return Background(sending, outputs)


def _is_under_way(directory: RunDirectory) -> bool:
    """Whether the run's links have an engine. Before, this host may still refuse the run, and its folder is removed."""
    try:
        with History.open(directory.path) as history:
            return "engine" in history.meta or history.outcome is not None
    except RecordError:
        return False
