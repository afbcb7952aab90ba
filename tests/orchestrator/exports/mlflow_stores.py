"""MLflow's own reader, for tests."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

NewStore = Callable[[Path], Path]
"""Makes a folder a store of MLflow without runs, see the fixture `new_store`."""


def client(folder: Path) -> Any:
    # Imported after `new_store`, which switched off MLflow's reports to its makers, and so that mypy does not read it.
    return importlib.import_module("mlflow").MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")


def runs_in(folder: Path, experiment: str) -> list[Any]:
    """The runs of an experiment, oldest first."""
    reader = client(folder)
    found = reader.get_experiment_by_name(experiment)
    return list(reversed(reader.search_runs([found.experiment_id])))
