"""Waking up when a child process has ended, for processes that wait for several things at once."""

from __future__ import annotations

import os
import signal


def wake_up_for_children() -> int:
    """A descriptor that can be read from when a child of this process has ended or was stopped (SIGCHLD)."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, _ignore)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def _ignore(*_: object) -> None:
    """Handle the signal in Python, so that it is written to the wake-up descriptor."""
