"""What the drivers of this host's processes share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from orchestrator.drivers.local import sweep
from orchestrator.host.process.processes import TRACKER, labels

WAIT = "import sys; print('here', flush=True); sys.stdin.read()"


def start(directory: Path, part: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", WAIT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **labels(directory.name, directory, part)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    return process


async def test_every_process_of_the_run_is_ended_but_its_trackers(tmp_path: Path) -> None:
    directory = tmp_path / f"swept-{os.getpid()}"
    directory.mkdir()
    with start(directory, "node") as node, start(directory, TRACKER) as tracker:
        await sweep(directory.name)
        assert node.wait() == -9
        assert tracker.poll() is None
        tracker.communicate()
    assert tracker.returncode == 0
