"""Checks whether files can be written to the given places, before anything is made."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from orchestrator.errors import PlaceError


def check_folder(folder: Path, remedy: str) -> None:
    """PlaceError with this remedy if files cannot be made in a folder. The folder need not exist yet."""
    try:
        with tempfile.TemporaryFile(dir=_nearest(folder)):
            pass
    except OSError as error:
        raise PlaceError(f"nothing can be written in {folder} ({error.strerror}): {remedy}") from None


def check_file(file: Path, remedy: str) -> None:
    """PlaceError with this remedy if a file cannot be written, or replaced if it exists."""
    try:
        if file.exists():
            descriptor = os.open(file, os.O_WRONLY | os.O_NONBLOCK)
            os.close(descriptor)
        else:
            with tempfile.TemporaryFile(dir=_nearest(file.parent)):
                pass
    except OSError as error:
        raise PlaceError(f"{file} cannot be written ({error.strerror}): {remedy}") from None


def _nearest(folder: Path) -> Path:
    """The folder itself, or its nearest parent that exists. OSError if it cannot be looked up."""
    while True:
        try:
            folder.stat()
        except FileNotFoundError:
            folder = folder.parent
        else:
            return folder
