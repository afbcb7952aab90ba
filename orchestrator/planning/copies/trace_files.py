"""Copies of a scenario's files in the run's directory: the run can be shown and continued without the originals.

They are in a separate folder, and their names begin with their hash, so that they overwrite neither each other nor the
run's own files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any

from node.files import read_untrusted
from orchestrator.errors import RunError
from orchestrator.scenario.language.files import LARGEST_FILE

MOST_BYTES = 4 * LARGEST_FILE  # of a file of LARGEST_FILE characters
FOLDER = "files"
PARTITION = "file"  # the partition that a file gives


def keep_files(
    plan: Mapping[str, Any], base: Path, directory: Path, texts: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Copy the files that a plan.json names into a run's directory. Their paths are relative to ``base``. ``texts``:
    of files that are not read, by name."""
    for name, sha256 in _named(plan):
        try:
            if name in texts:
                text = texts[name]
            else:
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
        text = read_untrusted(_place(directory, name, sha256), MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        return None
    return text if _hash(text) == sha256 else None


def kept_files(plan: Mapping[str, Any], directory: Path) -> dict[str, str]:
    """The texts of the files that a plan.json names, by their names in the scenario; files not kept are left out."""
    found = {name: find_file(directory, name, sha256) for name, sha256 in _named(plan)}
    return {name: text for name, text in found.items() if text is not None}


def _named(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The name and the hash of each file: of schedules, cross traffic, clients' settings and stays, the partition."""
    given = [link["schedule"] for link in plan["links"] if link.get("schedule")]
    population = plan.get("population")
    if population is not None:
        given.append(population["availability"])
    given += plan.get("clients", {}).values()
    given += [each for medium in plan.get("media", ()) for each in medium.get("schedules", {}).values()]
    given += [each["traffic"] for each in plan.get("cross_traffic", ())]
    if (data := plan.get("data", {})).get("partition") == PARTITION:
        params = data["partition_params"]
        given.append({"csv": params["path"], "sha256": params["sha256"]})
    return list(dict.fromkeys((each[key], each["sha256"]) for each in given for key in ("trace", "csv") if key in each))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _place(directory: Path, name: str, sha256: str) -> Path:
    end = PurePath(name).name[-100:].encode()[-242:].decode(errors="ignore")  # file systems allow 255 bytes
    return directory / FOLDER / f"{sha256[:12]}-{end}"
