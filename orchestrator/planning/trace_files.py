"""Copies of a scenario's files in the run's directory: the run can be shown and continued without the originals.

They are in a separate folder, and their names begin with their hash, so that they overwrite neither each other nor the
run's own files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any

from netem.traces import Table, Trace
from orchestrator.errors import RunError
from orchestrator.planning.plan import DataPlan, LinkPlan
from orchestrator.population.availability import FromTrace
from orchestrator.population.population import Population

FOLDER = "files"
FILE = "file"  # the partition


def keep_files(
    links: Iterable[LinkPlan],
    base: Path,
    directory: Path,
    population: Population | None = None,
    data: DataPlan | None = None,
) -> None:
    """Copy the files of the links' schedules, of the partition, and the trace of the population's clients, into a run's
    directory. Their paths are relative to ``base``."""
    schedules = [link.schedule for link in links if isinstance(link.schedule, Trace | Table)]
    named = [(schedule.name, schedule.sha256) for schedule in schedules]
    if population is not None and isinstance(population.availability, FromTrace):
        named.append((population.availability.table.name, population.availability.table.sha256))
    if data is not None and data.partition == FILE:
        named.append((data.partition_params["path"], data.partition_params["sha256"]))
    for name, sha256 in dict.fromkeys(named):
        try:
            text = (base / name).read_text(encoding="utf-8")
            if _hash(text) != sha256:
                raise RunError(f"{name} was changed after the scenario was read: start again")
            place = _place(directory, name, sha256)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"{name} cannot be kept in {directory}: {error}; is it still there?") from None


def find_file(directory: Path, name: str, sha256: str) -> str | None:
    """The text of a kept file; None if it is missing or its hash differs."""
    try:
        text = _place(directory, name, sha256).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return text if _hash(text) == sha256 else None


def kept_files(plan: Mapping[str, Any], directory: Path) -> dict[str, str]:
    """The texts of the files that a plan.json names, by their names in the scenario; files not kept are left out."""
    schedules = [link["schedule"] for link in plan["links"] if link.get("schedule")]
    if (population := plan.get("population")) is not None:
        schedules.append(population["availability"])
    named = {each[key]: each["sha256"] for each in schedules for key in ("trace", "csv") if key in each}
    if (data := plan.get("data", {})).get("partition") == FILE:
        named[data["partition_params"]["path"]] = data["partition_params"]["sha256"]
    found = {name: find_file(directory, name, sha256) for name, sha256 in named.items()}
    return {name: text for name, text in found.items() if text is not None}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _place(directory: Path, name: str, sha256: str) -> Path:
    return directory / FOLDER / f"{sha256[:12]}-{PurePath(name).name[-100:]}"
