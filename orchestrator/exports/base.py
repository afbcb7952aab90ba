"""What a store of results can do. ``orchestrator.exports.destinations`` lists the stores."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from orchestrator.errors import PlaceError
from orchestrator.exports.scalars import Scalar
from orchestrator.results.history import History


class AlreadyThereError(PlaceError):
    """The store already has this run."""

    def __init__(self, run: str, where: str) -> None:
        super().__init__(f"{run} is already in {where}: remove it there, or choose another place")


def remove(folder: Path, pattern: str) -> None:
    """Remove files of a run that could not be written whole, and their folder if nothing else is in it."""
    with contextlib.suppress(OSError):
        for file in folder.glob(pattern):
            file.unlink()
        folder.rmdir()


class Store(Protocol):
    """A place that takes the results of runs."""

    def find(self, history: History) -> str | None:
        """Where the store has the run; None if it does not have it."""

    def write(self, history: History) -> str:
        """Write the run as far as it is recorded, and return its place. AlreadyThereError if the store has it."""


class Tracker(Protocol):
    """One run in a store that is written during the run."""

    def add(self, scalars: Iterable[Scalar]) -> None:
        """Write scalars, so that readers see them."""

    def finish(self, history: History) -> None:
        """Write the verdict and the files of the run, and end it as it ended."""


class TrackingStore(Store, Protocol):
    """A store in which readers can follow a run."""

    def begin(self, history: History) -> Tracker:
        """Start the run in the store. AlreadyThereError if the store has it."""
