"""Copies of a scenario's files in the run's directory: the run can be shown and continued without the originals.

They are in a separate folder, and their names start with their hash, so that they overwrite neither each other nor the
run's own files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from orchestrator.errors import RunError
from orchestrator.record.kept_files import find_file, hash_of, place_of

PARTITION = "file"  # the partition that a file gives


def keep_files(
    plan: Mapping[str, Any],
    base: Path,
    directory: Path,
    texts: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Copy the files that a plan.json names into a run's directory. Their paths are relative to ``base``. ``texts``:
    of files that are not read, by name."""
    for name, sha256 in _named(plan):
        try:
            if name in texts:
                text = texts[name]
            else:
                text = (base / name).read_text(encoding="utf-8")
            if hash_of(text) != sha256:
                raise RunError(f"{name} was changed after the scenario was read: start again")
            place = place_of(directory, name, sha256)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"{name} cannot be kept in {directory}: {error}; is it still there?") from None


def kept_files(plan: Mapping[str, Any], directory: Path) -> dict[str, str]:
    """The texts of the files that a plan.json names, by their names in the scenario; files not kept are left out."""
    texts = {}
    for name, sha256 in _named(plan):
        text = find_file(directory, name, sha256)
        if text is not None:
            texts[name] = text
    return texts


def _named(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The name and the hash of each file: of schedules, cross traffic, clients' settings and stays, the partition."""
    hashes: dict[tuple[str, str], None] = {}
    for entry in _with_files(plan):
        for key in ("trace", "csv"):
            if key in entry:
                hashes[entry[key], entry["sha256"]] = None
    return list(hashes)


def _with_files(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The entries of a plan.json that may name a file."""
    for link in plan["links"]:
        if link.get("schedule"):
            yield link["schedule"]
    population = plan.get("population")
    if population is not None:
        yield population["availability"]
    yield from plan.get("clients", {}).values()
    for medium in plan.get("media", ()):
        yield from medium.get("schedules", {}).values()
    for cross_traffic in plan.get("cross_traffic", ()):
        yield cross_traffic["traffic"]
    data = plan.get("data", {})
    if data.get("partition") == PARTITION:
        params = data["partition_params"]
        path = params["path"]
        yield {"csv": path, "sha256": params["sha256"]}
