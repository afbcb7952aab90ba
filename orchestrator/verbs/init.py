"""`init`: a small project with an algorithm of its own, which runs at once."""

from __future__ import annotations

import shutil
from pathlib import Path

from orchestrator.errors import PlaceError

TEMPLATE = Path(__file__).parent / "project"
FILES = {
    "scenario.yaml": "scenario.yaml",
    "fedavgm.py": "fedavgm.py",
    "test_fedavgm.py": "test_fedavgm.py",
    "edgebed.yml": ".github/workflows/edgebed.yml",
}
"""The files of the template, and their places in the project."""


def make_project(folder: Path) -> list[Path]:
    """Write the project into a folder that is new or empty. Returns its files. PlaceError if it cannot be written."""
    try:
        check_new(folder)
        made = []
        for name, place in FILES.items():
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(TEMPLATE / name, path)
            made.append(path)
        return made
    except OSError as error:
        raise PlaceError(f"{folder} cannot be made: {error.strerror}") from None


def check_new(folder: Path) -> None:
    """PlaceError if the folder is there and is not empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PlaceError(f"{folder} is there already and is not empty: name a new folder")
