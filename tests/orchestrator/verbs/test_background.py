"""The process that starts a run in the background."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from orchestrator.host.process.signals import INTERRUPTED
from orchestrator.verbs.background import Launcher
from tests.texts import containing


def test_a_run_that_is_killed_before_it_starts(tmp_path: Path) -> None:
    messages, sending = os.pipe()
    with subprocess.Popen(["sleep", "60"]) as child:
        os.write(sending, json.dumps({"run": str(tmp_path)}).encode() + b"\n")
        os.close(sending)
        child.send_signal(signal.SIGKILL)
        directory, error, code = Launcher(child.pid, messages).wait()
    assert (directory, code) == (None, INTERRUPTED)
    assert error == containing("SIGKILL ended the run", "`ps`")
