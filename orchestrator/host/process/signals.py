"""The handling of signals that end a program: SIGINT (Ctrl-C), SIGTERM, SIGHUP (the terminal is gone) and SIGQUIT.

Outside a run, each signal raises KeyboardInterrupt. During a run, the first signal ends the run in order. A second
signal, or SIGQUIT, ends it immediately; so does the first if nothing has reacted to it for some seconds, because code
of a plug-in blocks the event loop. A third signal ends the process without any cleanup.

A command imports this module before anything else, so it imports little: a signal that comes before its handlers are
installed ends the process with a traceback.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import asyncio

REACTION = 1.5  # s for a run to react to the first signal
INTERRUPTED = 130  # exit code: 128 + SIGINT, as shells give it
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

Handler = Callable[[int, FrameType | None], None]

T = TypeVar("T")

_asked = False
_thread = threading.local()  # `interruption`: what may end the run of this thread


class Interruption:
    """The interruption of a run by signals. ``at_once`` does the work that is necessary before the process ends with
    exit code 130. It runs in the signal handler, between two steps of Python code."""

    def __init__(self, at_once: Callable[[], object] = lambda: None) -> None:
        self.asked = False
        self._in_order: Callable[[], object] | None = None
        self.at_once = at_once
        self._process = os.getpid()
        self._at_once = False
        self._timed = False

    @contextlib.contextmanager
    def handled_by(
        self,
        loop: asyncio.AbstractEventLoop,
        in_order: Callable[[], object],
        at_once: Callable[[], object],
    ) -> Iterator[None]:
        """While the body runs, the first signal calls ``in_order`` in the event loop. If a signal came earlier,
        ``in_order`` is called at the start. ``at_once`` remains set after the body."""

        def react() -> None:
            self.reacted()
            in_order()

        self._in_order = lambda: loop.call_soon_threadsafe(react)
        self.at_once = at_once
        if self.asked:
            in_order()
        try:
            yield
        finally:
            self._in_order = None
            self.reacted()

    def reacted(self) -> None:
        """Stop the timer that the first signal has set."""
        if self._timed:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def end(self) -> None:
        """End the run in order, without a signal. Other threads may call this."""
        self.asked = True
        in_order = self._in_order
        if in_order is not None:
            in_order()

    def handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            return  # this is a process that has just been forked: its parent decides
        if self.asked and number == signal.SIGHUP:
            return  # the kernel and the shell both send it when the terminal is gone
        if self._at_once:
            os._exit(INTERRUPTED)
        first = not self.asked
        self.asked = True
        _note()
        if first and number != signal.SIGQUIT:
            if self._in_order is not None:
                self._timed = True
                signal.setitimer(signal.ITIMER_REAL, REACTION)
                self._in_order()
            return
        self._at_once = True
        try:
            self.at_once()
        finally:
            os._exit(INTERRUPTED)


def raise_on_signals() -> None:
    """Make the signals raise KeyboardInterrupt from now on. SIGHUP stays ignored if it was ignored (nohup(1))."""
    _install(_raise)


def ignore_signals() -> None:
    """Ignore the signals, because the process is about to end."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def interrupted() -> bool:
    """Whether a signal asked this process to end."""
    return _asked


@contextlib.contextmanager
def answered() -> Iterator[None]:
    """For a program that continues after the body: KeyboardInterrupt at its end if a signal came. The next body is not
    affected by this signal. Without effect outside the main thread, where signals end nothing."""
    global _asked
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        yield
        if _asked:
            raise KeyboardInterrupt
    finally:
        _asked = False


@contextlib.contextmanager
def interruptible() -> Iterator[Interruption]:
    """Handle the signals for a run while the body runs. KeyboardInterrupt if a signal came before. Python gives signals
    to the main thread only. In another thread they do not end the run, unless `in_thread` made the thread for it."""
    if _asked:
        raise KeyboardInterrupt
    given = getattr(_thread, "interruption", None)
    if given is not None:
        yield given
        return
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = _install(interruption.handle)
    alarm_before = signal.signal(signal.SIGALRM, interruption.handle)
    before[signal.SIGALRM] = alarm_before
    try:
        yield interruption
    finally:
        interruption.reacted()
        for number, handler in before.items():
            signal.signal(number, handler)


LOOK_EVERY = 0.5  # s, in which a signal to another thread is handled at the latest


def in_thread(work: Callable[[], T]) -> T:
    """The result of ``work``, a run in a thread of its own, which signals to the main thread end."""
    from concurrent.futures import ThreadPoolExecutor, wait

    with interruptible() as interruption, ThreadPoolExecutor(1, "run") as pool:
        run = pool.submit(ended_by, interruption, work)
        while not run.done():
            # The kernel may give a signal to any thread. Python then handles it when the main thread wakes up.
            wait([run], LOOK_EVERY)
        return run.result()


def ended_by(interruption: Interruption, work: Callable[[], T]) -> T:
    """The result of ``work``, which runs a scenario in a thread made for it. ``interruption`` ends the run."""
    _thread.interruption = interruption
    return work()


def _install(handler: Handler) -> dict[int, signal._HANDLER]:
    """Set the handler of every signal except an ignored SIGHUP. Returns the previous handlers."""
    before: dict[int, signal._HANDLER] = {}
    for number in ENDING:
        if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
            continue
        before[number] = signal.signal(number, handler)
    return before


def _note() -> None:
    global _asked
    _asked = True


def _raise(number: int, frame: FrameType | None) -> None:
    _note()
    raise KeyboardInterrupt
