"""The process that follows one run for one destination: ``python -m orchestrator.exports.follow DIRECTORY KIND:PLACE``.

It reads the run's record, so it can neither slow the run down nor change its results. It has the lowest priority. Its
standard input closes when the orchestrator has ended, for whatever reason. Then it writes what is left, and ends.
On a failure it prints one sentence and ends with exit code 1.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from orchestrator.errors import OrchestratorError, RecordError
from orchestrator.exports.base import AlreadyThereError, Tracker, TrackingStore
from orchestrator.exports.destinations import Destination
from orchestrator.exports.scalars import Unwritten, scalars
from orchestrator.results.history import History

EVERY = 1.0  # s
SHARE = 0.1  # of the time that may be spent on reading and writing, on average
GLANCE = 0.01  # s
FINISH = 60  # s for the rest after the end of the run


def follow(
    directory: Path,
    store: TrackingStore,
    ended: Callable[[float], bool],
) -> None:
    """Write a run into a store until it has ended, unless the store has it already or it never started. ``ended`` waits
    so many seconds for its end, and returns whether it has ended."""
    tracker: Tracker | None = None
    unwritten = Unwritten()
    pause = EVERY
    over = False
    while not over:
        over = ended(pause)
        started = time.monotonic()
        try:
            history = History.open(directory)
        except RecordError:
            if over and tracker is None:
                return  # the run was removed because nothing of it was started
            raise
        with history:
            if tracker is None:
                has_started = history.outcome is not None or history.states()
                if has_started:
                    try:
                        tracker = store.begin(history)
                    except AlreadyThereError:
                        return
            if tracker is not None:
                new = unwritten.among(scalars(history))
                tracker.add(new)
                if over:
                    while history.status == "running":  # the input of one that is killed may close before its lock
                        time.sleep(GLANCE)
                    tracker.finish(history)
        taken = time.monotonic() - started
        pause = max(EVERY, taken / SHARE)


def input_ends(seconds: float) -> bool:
    inputs = [sys.stdin]
    readable, _, _ = select.select(inputs, [], [], seconds)
    if readable:
        signal.alarm(FINISH)  # the default action ends the process
    return bool(readable)


def main(arguments: list[str]) -> int:
    os.nice(19)
    directory, destination = arguments
    try:
        store = Destination.parse(destination).open_tracking()
        follow(Path(directory), store, input_ends)
    except (OrchestratorError, OSError) as error:
        one_line = str(error).replace("\n", " ")
        print(one_line, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
