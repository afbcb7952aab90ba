"""New folders: `init` writes a small project with an algorithm of its own, which can be run immediately. `image` writes
a folder from which a Docker Engine builds the images of nodes and agents without a checkout."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
from pathlib import Path

from node.extras import LEARNING, requirement
from orchestrator.errors import PlaceError
from orchestrator.host.process.python import ROOT
from orchestrator.scenario.schema import json_schema

TEMPLATE = Path(__file__).parent / "project"
FILES = {
    "README.md": "README.md",
    "scenario.yaml": "scenario.yaml",
    "fedavgm.py": "fedavgm.py",
    "test_fedavgm.py": "test_fedavgm.py",
    "project.toml": "pyproject.toml",
    "gitignore": ".gitignore",
    "edgebed.yml": ".github/workflows/edgebed.yml",
}
"""The files of the template, and their places in the project."""

DOCKERFILES = Path(__file__).parent / "images"
PACKAGES = ("edgebed", "netem", "node", "orchestrator")
"""What nodes with their plug-ins and agents need of edgebed. The Dockerfiles copy these folders."""
SCHEMA = "edgebed.schema.json"
"""The schema of scenarios, for editors. The first line of scenario.yaml names it."""


def make_project(folder: Path) -> list[Path]:
    """Write the project into a folder that is new or empty. Returns its files. PlaceError if it cannot be written."""
    texts = {}
    for name, place in FILES.items():
        texts[place] = (TEMPLATE / name).read_text(encoding="utf-8")
    version = importlib.metadata.version("edgebed")
    own_requirement = requirement(LEARNING, version)
    texts["pyproject.toml"] = texts["pyproject.toml"].replace("{edgebed}", own_requirement)
    texts[SCHEMA] = json.dumps(json_schema(), indent=2) + "\n"
    try:
        check_new(folder)
        for place, text in texts.items():
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PlaceError(f"{folder} cannot be made: {error.strerror}") from None
    return [folder / place for place in texts]


def check_new(folder: Path) -> None:
    """PlaceError if the folder exists and is not empty."""
    if not folder.exists():
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise PlaceError(f"{folder} is there already and is not empty: name a new folder")


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
