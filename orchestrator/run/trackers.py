"""Destinations that follow a run: one process for each, during the run (`orchestrator.exports.follow`)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.exports.destinations import Destination
from orchestrator.exports.follow import FINISH
from orchestrator.host.process.processes import TRACKER, labels
from orchestrator.host.process.python import module
from orchestrator.record.directory import RunDirectory
from orchestrator.text import visible


@contextlib.contextmanager
def tracked(directory: RunDirectory, destinations: Sequence[Destination]) -> Iterator[None]:
    """Follow a run while the body executes it, and then send the rest to every destination. A destination that fails
    never fails the run. It causes a warning on standard error."""
    processes = {}
    for destination in dict.fromkeys(destinations):
        try:
            processes[destination] = _start(directory, destination)
        except Exception as error:
            _warn(directory, destination, str(error))
    try:
        yield
    finally:
        for process in processes.values():
            assert process.stdin is not None
            process.stdin.close()  # the signal that the run has ended
            process.stdin = None
        for destination, process in processes.items():
            problem = _problem(process)
            if problem is not None:
                _warn(directory, destination, problem or f"see {_log(directory, destination)}")


def _problem(process: subprocess.Popen[str]) -> str | None:
    """Wait for the end of a tracker. Its error message if it failed; None if it did not."""
    try:
        output, _ = process.communicate(timeout=FINISH)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"the rest was not written within {FINISH} s"
    if process.returncode == 0:
        return None
    return output.strip()


def _start(directory: RunDirectory, destination: Destination) -> subprocess.Popen[str]:
    command = module("orchestrator.exports.follow", str(directory.path), str(destination))
    own_labels = labels(directory.run, directory.path, TRACKER)
    with _log(directory, destination).open("ab") as errors:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **own_labels},
            start_new_session=True,  # Ctrl-C in a terminal reaches only the orchestrator
        )


def _log(directory: RunDirectory, destination: Destination) -> Path:
    return directory.logs / f"tracker-{destination.kind}.log"


def _warn(directory: RunDirectory, destination: Destination, why: str) -> None:
    remedy = f"`export DIR --run {directory.run}` writes all of it to another place"
    print(f"warning: {directory.run} is not complete in {destination}: {visible(why)}; {remedy}", file=sys.stderr)
