"""Runs in the format of a plug-in: its function fills a folder for each run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from node.assignment import PluginSource
from node.plugins import Export, line_of
from orchestrator.errors import PlaceError, RunError
from orchestrator.exports.base import AlreadyThereError
from orchestrator.results.history import History
from orchestrator.results.tables import rows_of


class PluginStore:
    """A folder with one folder for each run. ``write``: the function of a plug-in, see `node.plugins.Plugin`."""

    def __init__(self, folder: Path, write: Export, source: PluginSource) -> None:
        self._folder = folder
        self._write = write
        self._source = source

    def find(self, history: History) -> str | None:
        place = self._folder / history.run
        if any(place.glob("*")):
            return str(place)
        return None

    def write(self, history: History) -> str:
        """Let the plug-in fill the folder of the run, or leave none behind. RunError, with file and line, if it fails;
        PlaceError if the folder cannot be made."""
        existing = self.find(history)
        if existing is not None:
            raise AlreadyThereError(history.run, existing)
        place = self._folder / history.run

        def rows(kind: str) -> list[dict[str, Any]]:
            return rows_of(history, kind)

        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PlaceError(
                f"{place} cannot be written ({error.strerror}): free space, or choose another folder"
            ) from None
        try:
            self._write(rows, place)
        except BaseException as error:
            shutil.rmtree(place, ignore_errors=True)
            if not isinstance(error, Exception):
                raise
            where = line_of(error, [self._source]) or self._source.name
            raise RunError(f"{where}: {type(error).__name__}: {error}") from error
        return str(place)
