"""What tests of several parts of the orchestrator share."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def new_store(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Makes a folder a store of MLflow without runs: a copy, because making the tables of a store takes seconds."""
    from orchestrator.exports.mlflow_store import MlflowStore

    template = tmp_path_factory.mktemp("mlflow")
    with warnings.catch_warnings():
        # MLflow 3.17 uses `noload`, which SQLAlchemy 2.1 deprecates. The warning comes once in a process.
        warnings.filterwarnings("ignore", "The ``noload`` loader strategy", DeprecationWarning)
        MlflowStore(str(template))

    def make(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(template / "mlflow.db", folder)
        return folder

    return make
