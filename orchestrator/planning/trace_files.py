"""Files that a scenario names, kept in its run's directory: the run can be looked at and continued without them.

They lie in a folder of their own under the beginning of their hash, so that none takes the place of another, nor of
something of the run's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any

from netem.traces import Table, Trace
from orchestrator.errors import RunError
from orchestrator.planning.plan import LinkPlan

FOLDER = "files"


def keep_files(links: Iterable[LinkPlan], base: Path, directory: Path) -> None:
    """Copy the files of the links' schedules, whose paths begin at ``base``, into a run's directory."""
    schedules = [link.schedule for link in links if isinstance(link.schedule, Trace | Table)]
    for name, sha256 in dict.fromkeys((schedule.name, schedule.sha256) for schedule in schedules):
        try:
            text = (base / name).read_text(encoding="utf-8")
            if _hash(text) != sha256:
                raise RunError(f"{name} has been changed since the scenario was read: begin again")
            place = _place(directory, name, sha256)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"{name} cannot be kept in {directory}: {error}; is it still there?") from None


def find_file(directory: Path, name: str, sha256: str) -> str | None:
    """The text of a file that was kept; None if it is not there, or another one is."""
    try:
        text = _place(directory, name, sha256).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return text if _hash(text) == sha256 else None


def kept_files(plan: Mapping[str, Any], directory: Path) -> dict[str, str]:
    """The texts of the files that a plan.json names, as far as they were kept, by the name that the scenario has."""
    schedules = [link["schedule"] for link in plan["links"] if link.get("schedule")]
    named = {each[key]: each["sha256"] for each in schedules for key in ("trace", "csv") if key in each}
    found = {name: find_file(directory, name, sha256) for name, sha256 in named.items()}
    return {name: text for name, text in found.items() if text is not None}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _place(directory: Path, name: str, sha256: str) -> Path:
    return directory / FOLDER / f"{sha256[:12]}-{PurePath(name).name[-100:]}"
