"""`image`: the folder from which a Docker Engine builds the images of nodes and agents, where there is no checkout."""

from __future__ import annotations

import shutil
from pathlib import Path

from orchestrator.errors import PlaceError
from orchestrator.host.process.python import ROOT
from orchestrator.verbs.init import check_new

DOCKERFILES = Path(__file__).parent / "images"
PACKAGES = ("edgebed", "netem", "node", "orchestrator")
"""What nodes with their plug-ins and agents need of edgebed. The Dockerfiles copy these folders."""


def make_build_folder(folder: Path) -> None:
    """Write the Dockerfiles, the lists of packages and the code of edgebed into a folder that is new or empty.

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
