"""Copies of the plug-ins' source in the run's directory. The nodes load these copies, and they stay with the record."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from node.assignment import PluginSource
from node.plugins import digest
from orchestrator.errors import RunError


def keep_plugins(sources: Iterable[PluginSource], folder: Path) -> None:
    """Copy the Python files of the plug-ins into ``folder``. RunError if one has changed since the plan was made."""
    folder.mkdir(mode=0o755, exist_ok=True)
    for source in sources:
        try:
            contents = source.contents()
            if digest(contents) != source.sha256:
                raise RunError(f"plug-in {source.name} was changed after the scenario was read: start again")
            for path, content in contents.items():
                place = folder / path
                place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                place.write_bytes(content)
                place.chmod(0o644)
        except OSError as error:
            raise RunError(f"plug-in {source.name} cannot be kept in {folder}: {error}; is it still there?") from None
