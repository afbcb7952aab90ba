"""Messages of a command on standard error while it works: the task that it waits for, and the log."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from orchestrator.text import visible

if TYPE_CHECKING:
    from rich.status import Status

PATIENCE = 2.0  # s
LOGGERS = ("node", "netem", "orchestrator")


@contextlib.contextmanager
def waiting(task: str, patience: float = PATIENCE) -> Iterator[None]:
    """While it lasts, and after ``patience`` seconds, show the ``task`` and then the steps that edgebed logs. On a
    terminal they replace each other, elsewhere each is a line."""
    from rich.status import Status

    console = Console(stderr=True, highlight=False)
    status = None
    if console.is_terminal:
        status = Status(Text(task), console=console)
    steps = _Steps(task, status)
    timer = threading.Timer(patience, steps.show)
    timer.daemon = True
    with _handled(steps):
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            steps.close()


def logging_to(tell: Callable[[str], object]) -> AbstractContextManager[None]:
    """While it lasts, ``tell`` receives what edgebed logs, a message at a time."""
    return _handled(_Lines(tell))


@contextlib.contextmanager
def _handled(handler: logging.Handler) -> Iterator[None]:
    """While it lasts, pass what edgebed logs to a handler."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)


class _Lines(logging.Handler):
    """Passes on each message."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(self.format(record))


class _Steps(logging.Handler):
    """Shows the latest step, once it may."""

    def __init__(self, task: str, status: Status | None) -> None:
        super().__init__()
        self._latest = task
        self._status = status
        self._shown = False
        self._over = False

    def show(self) -> None:
        """Show the latest step, and from now on each new one."""
        with self.lock or contextlib.nullcontext():
            if self._over:
                return
            self._shown = True
            if self._status is None:
                print(f"{self._latest} …", file=sys.stderr, flush=True)
            else:
                self._status.update(Text(f"{self._latest} …"))
                self._status.start()

    def emit(self, record: logging.LogRecord) -> None:
        self._latest = visible(record.getMessage())
        if self._shown or record.levelno >= logging.WARNING:
            self.show()

    def close(self) -> None:
        with self.lock or contextlib.nullcontext():
            self._over = True
            if self._status is not None:
                self._status.stop()
        super().close()
