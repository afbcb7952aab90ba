"""Only the folder of a driver, and the table of drivers, name its cluster engine: an outside driver needs no other
place."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
ENGINES = re.compile("swarm|slurm|kubernetes", re.IGNORECASE)
DRIVERS = ("docker", "kubernetes", "slurm", "swarm")
TABLE = "orchestrator/scenario/sections/drivers.py"
EXCEPTIONS = {
    "node/resources.py",  # reads the variable that a batch system sets, and imports nothing of the orchestrator
}


def test_only_a_drivers_folder_names_its_engine() -> None:
    naming = set()
    for package in ("edgebed", "netem", "node", "orchestrator"):
        for path in (ROOT / package).rglob("*.py"):
            place = path.relative_to(ROOT)
            is_of_driver = place.parts[:2] == ("orchestrator", "drivers") and place.parts[2] in DRIVERS
            is_linked = place.parts[:2] == ("orchestrator", "verbs") and place.parts[2] in ("docs", "scenarios")
            if not is_of_driver and not is_linked and ENGINES.search(path.read_text()):
                naming.add(str(place))
    assert naming == {TABLE, *EXCEPTIONS}
