"""Tests of waking up for the ends of children."""

from __future__ import annotations

import os
import select
import signal
import subprocess

from node.process.children import wake_up_for_children


def test_the_descriptor_can_be_read_from_when_a_child_has_ended() -> None:
    before = signal.getsignal(signal.SIGCHLD)
    descriptor = wake_up_for_children()
    written = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    try:
        assert select.select([descriptor], [], [], 0)[0] == []
        subprocess.run(["true"], check=True)
        assert select.select([descriptor], [], [], 10)[0] == [descriptor]
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, before)
        os.close(descriptor)
        os.close(written)
