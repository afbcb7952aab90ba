"""The scenarios and sweeps that edgebed ships. Bases of sweeps are scenarios in a folder of sweeps."""

from __future__ import annotations

from orchestrator.verbs.examples import FOLDER, names

FILES = [FOLDER / f"{name}.yaml" for name in names()]
SCENARIOS = [file for file in FILES if file.parent.name != "sweeps"]
SWEEPS = [file for file in FILES if file.parent.name == "sweeps"]
