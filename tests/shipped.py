"""The scenarios, sweeps and studies that edgebed ships. Bases of sweeps are scenarios in a folder of sweeps."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from orchestrator.sweep.reading import Sweep, load
from orchestrator.verbs.examples import FOLDER, names

FILES = [FOLDER / f"{name}.yaml" for name in names()]
SCENARIOS = [file for file in FILES if file.parent.name not in ("sweeps", "limits")]
SWEEPS = [file for file in FILES if file.parent.name == "sweeps"]


@cache
def read_sweep(file: Path, *overrides: str) -> Sweep:
    """A sweep, read once in a process: reading all that are shipped takes ten seconds of a processor."""
    return load(file, overrides)
