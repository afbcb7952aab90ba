"""`image`: the folder from which a Docker Engine builds the image of nodes, for users who have no checkout."""

from __future__ import annotations

import shutil
from pathlib import Path

from orchestrator.errors import PlaceError
from orchestrator.host.python import ROOT
from orchestrator.verbs.init import check_new

DOCKERFILES = Path(__file__).parent / "images"
PACKAGES = ("edgebed", "node")
"""What a node and its plug-ins need of edgebed. The Dockerfiles copy these folders."""


def make_build_folder(folder: Path) -> None:
    """Write the Dockerfiles, the lists of packages and the code of nodes into a folder that is new or empty.

    The folder is laid out like the project's. PlaceError if it cannot be written.
    """
    try:
        check_new(folder)
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(DOCKERFILES, folder / "images", dirs_exist_ok=True)
        for package in PACKAGES:
            shutil.copytree(Path(ROOT, package), folder / package, ignore=without)
    except (OSError, shutil.Error) as error:
        raise PlaceError(f"{folder} cannot be made: {error}") from None
