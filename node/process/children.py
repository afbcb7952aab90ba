"""Waking up when a child process has ended, for processes that wait for several things at once."""

from __future__ import annotations

import os
import signal


def wake_up_for_children() -> int:
    """A descriptor that can be read from when a child of this process has ended or was stopped (SIGCHLD)."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read
