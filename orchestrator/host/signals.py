"""What the signals do that end a program: SIGINT (Ctrl-C), SIGTERM, SIGHUP (the terminal is gone) and SIGQUIT.

Outside a run each raises KeyboardInterrupt. During a run the first one ends it in order. A second one, or SIGQUIT, ends
it at once. A third one does not even wait for that.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

INTERRUPTED = 130  # exit code: 128 + SIGINT, as shells give it
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

Handler = Callable[[int, FrameType | None], None]

_asked = False


def _nothing() -> None:
    pass


class Interruption:
    """What the signals ask of a run. Both functions are called between two steps of whatever Python does at the time.

    ``at_once`` does what must be done before the process ends with exit code 130.
    """

    def __init__(self, at_once: Callable[[], object] = _nothing) -> None:
        self.asked = False
        self._in_order: Callable[[], object] = _nothing
        self.at_once = at_once
        self._process = os.getpid()
        self._at_once = False

    @contextlib.contextmanager
    def heard_by(self, in_order: Callable[[], object], at_once: Callable[[], object]) -> Iterator[None]:
        """While the body runs the first signal calls ``in_order``, which must return soon; so does an earlier one.

        ``at_once`` stays in force after the body.
        """
        self._in_order, self.at_once = in_order, at_once
        if self.asked:
            in_order()
        try:
            yield
        finally:
            self._in_order = _nothing

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if os.getpid() != self._process:
            return  # a process that has just been forked: its parent decides
        if self.asked and number == signal.SIGHUP:
            return  # the kernel and the shell both say that the terminal is gone
        if self._at_once:
            os._exit(INTERRUPTED)
        first, self.asked = not self.asked, True
        _note()
        if first and number != signal.SIGQUIT:
            self._in_order()
            return
        self._at_once = True
        try:
            self.at_once()
        finally:
            os._exit(INTERRUPTED)


def raise_on_signals() -> None:
    """From now on a signal raises KeyboardInterrupt. Who has SIGHUP ignored (nohup(1)) keeps it so."""
    _install(_raise)


def ignore_signals() -> None:
    """The process is about to end, and is not disturbed any more."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def interrupted() -> bool:
    """Whether a signal asked this process to end."""
    return _asked


@contextlib.contextmanager
def interruptible() -> Iterator[Interruption]:
    """A run goes on in the body. KeyboardInterrupt if this process was asked to end before."""
    if _asked:
        raise KeyboardInterrupt
    interruption = Interruption()
    before = _install(interruption.handle)
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _install(handler: Handler) -> dict[int, signal._HANDLER]:
    """Set the handler of every signal that is not to be ignored; those that were there."""
    handled = [each for each in ENDING if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in handled}


def _note() -> None:
    global _asked
    _asked = True


def _raise(number: int, frame: FrameType | None) -> None:
    _note()
    raise KeyboardInterrupt
