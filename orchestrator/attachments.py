"""Files that a scenario names, kept in its run's directory: with them the run can be looked at, and made, anywhere.

Each lies where the scenario's copy in that directory looks for it. One that lies elsewhere, or would take the place of
something of the run's own, is kept in ``traces/`` under the beginning of its hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath

from netem.traces import Table, Trace
from orchestrator.errors import RunError
from orchestrator.planning.plan import LinkPlan

FOLDER = "traces"


def keep_files(links: Iterable[LinkPlan], base: Path, directory: Path) -> None:
    """Copy the files of the links' schedules, whose paths begin at ``base``, into a run's directory."""
    schedules = [link.schedule for link in links if isinstance(link.schedule, Trace | Table)]
    for name, sha256 in dict.fromkeys((schedule.name, schedule.sha256) for schedule in schedules):
        try:
            text = (base / name).read_text(encoding="utf-8")
            if find_file(directory, name, sha256) is None:
                place = next(each for each in _places(directory, name, sha256) if not each.exists())
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8")
        except (OSError, StopIteration) as error:
            raise RunError(f"{name} cannot be kept in {directory}: {error}; is it still there?") from None


def find_file(directory: Path, name: str, sha256: str) -> str | None:
    """The text of a file that was kept; None if it is not there, or another one is."""
    for place in _places(directory, name, sha256):
        if place.is_file():
            text = place.read_text(encoding="utf-8", errors="replace")
            if hashlib.sha256(text.encode()).hexdigest() == sha256:
                return text
    return None


def _places(directory: Path, name: str, sha256: str) -> Iterator[Path]:
    path = PurePath(name)
    if not path.is_absolute() and ".." not in path.parts:
        yield directory / path
    yield directory / FOLDER / f"{sha256[:12]}-{path.name}"
