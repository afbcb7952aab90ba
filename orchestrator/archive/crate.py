"""The description of an archive as an RO-Crate, and of its data sets in Croissant.

RO-Crate 1.1: https://w3id.org/ro/crate/1.1. Process Run Crate 0.5: https://w3id.org/ro/wfrun/process/0.5.
Croissant 1.0: http://mlcommons.org/croissant/1.0.
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

from node.catalogue.datasets import DATASETS
from node.learning.data.datasets import Prepared
from orchestrator.archive.expected import ExpectedRun
from orchestrator.exports.extras import imported
from orchestrator.results.record.history import History

EXTRA = "archive"
METADATA = "ro-crate-metadata.json"
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
CROISSANT = "http://mlcommons.org/croissant/1.0"
HOME = "https://github.com/edgebed/edgebed"
_TERMS = {"sha256": "https://w3id.org/ro/terms/workflow-run#sha256"}
_TYPES = {".yaml": "application/yaml", ".db": "application/vnd.sqlite3", ".jsonld": "application/ld+json"}
_HOST = {"cpu": "", "cores": "", "memory": "B", "kernel": "", "platform": "", "python": ""}
_UNITS = {"rtt": "s", "loss": "", "rate": "bit/s"}

Content = bytes | Path
Entity = dict[str, Any]


@dataclass(frozen=True)
class RunFacts:
    """What the description says of a run: its folder in the archive, start and end, PropertyValues, and the file that
    describes its data set, if it has one."""

    folder: str
    title: str
    started: str
    ended: str
    properties: Sequence[Entity]
    data: str | None


def run_facts(history: History, folder: str, expected: ExpectedRun, data: str | None) -> RunFacts:
    """Read what the description says of a complete run."""
    started = datetime.strptime(history.meta["started"], "%Y-%m-%dT%H:%M:%S%z")
    wall = history.outcome.wall if history.outcome is not None and history.outcome.wall is not None else 0.0
    title = f"{expected.case}, seed {expected.seed}, {expected.driver}"
    properties = [
        _property(folder, "verdict", expected.verdict),
        *(_property(folder, name, each.expected) for name, each in expected.figures.items()),
        *(
            _property(folder, f"host {key}", history.meta[key], unit)
            for key, unit in _HOST.items()
            if key in history.meta
        ),
        *_links(history, folder),
    ]
    ended = started + timedelta(seconds=wall)
    return RunFacts(folder, title, started.isoformat(), ended.isoformat(timespec="seconds"), properties, data)


def _links(history: History, folder: str) -> Iterator[Entity]:
    """The links as configured, by class or pair, and as measured: mean, lowest and highest value of each quantity."""
    for name, settings in history.effective.get("links", {}).items():
        yield _property(folder, f"links {name}, configured", json.dumps(settings))
    measured: dict[str, list[float]] = {}
    for probe in history.probes():
        if probe.measured is not None:
            measured.setdefault(f"{probe.link_class} {probe.quantity}", []).append(probe.measured)
    for name, values in measured.items():
        bounds = {"minValue": min(values), "maxValue": max(values)}
        yield _property(folder, f"links {name}, measured", fmean(values), _UNITS.get(name.split()[-1], "")) | bounds


def _property(folder: str, name: str, value: Any, unit: str = "") -> Entity:
    entity = {"@id": f"#{folder}{name.replace(' ', '-')}", "@type": "PropertyValue", "name": name, "value": value}
    return entity | ({"unitText": unit} if unit else {})


def describe(
    name: str,
    files: Mapping[str, Content],
    runs: Sequence[RunFacts],
    version: str,
    authors: Sequence[str],
    license: str | None,
) -> bytes:
    """The content of ro-crate-metadata.json, with the hash of each file. RunError without the package rocrate."""
    library, models = imported("rocrate.rocrate", EXTRA), imported("rocrate.model", EXTRA)
    crate = library.ROCrate(version="1.1")
    crate.metadata.extra_terms |= _TERMS
    crate.name = name
    crate.description = f"Runs of edgebed, with all that is needed to repeat them: edgebed reproduce {name}.zip"

    def add(identifier: str, kind: str, **properties: Any) -> Any:
        return crate.add(models.ContextEntity(crate, identifier, {"@type": kind, **properties}))

    stated = add(license, "CreativeWork", name=license, description="of this archive") if license else "ask the author"
    crate.root_dataset["license"] = stated
    people = [add(f"#{author.replace(' ', '-')}", "Person", name=author) for author in authors]
    crate.root_dataset["conformsTo"] = add(PROFILE, "CreativeWork", name="Process Run Crate", version="0.5")
    edgebed = add(f"{HOME}#{version}", "SoftwareApplication", name="edgebed", url=HOME, softwareVersion=version)
    parts = {
        path: crate.add(models.File(crate, dest_path=path, properties=_file(path, content)))
        for path, content in files.items()
    }
    actions = []
    for run in runs:
        own = [each for path, each in parts.items() if path.startswith(run.folder)]
        what = {"name": run.title, "description": "one run of the scenario: its plan, record and report"}
        folder = crate.add(models.Dataset(crate, dest_path=run.folder, properties=what))
        folder["hasPart"] = own
        folder["variableMeasured"] = [add(each.pop("@id"), each.pop("@type"), **each) for each in run.properties]
        times = {"startTime": run.started, "endTime": run.ended}
        action = add(f"#{run.folder}run", "CreateAction", **what, **times, instrument=edgebed)
        scenario = parts[f"{run.folder}scenario.yaml"]
        action["object"] = _compact([scenario, *([parts[run.data]] if run.data else [])])
        action["result"] = [folder, *(each for each in own if each is not scenario)]
        if people:
            action["agent"] = people[0]
        actions.append(action)
    if people:
        crate.root_dataset["author"] = _compact(people)
    crate.root_dataset["mentions"] = _compact(actions)
    return (json.dumps(crate.metadata.generate(), indent=1) + "\n").encode()


def _compact(values: list[Any]) -> Any:
    """A single value without its list, as JSON-LD prefers it."""
    return values if len(values) > 1 else values[0]


def _file(path: str, content: Content) -> Entity:
    suffix = Path(path).suffix
    kind = _TYPES.get(suffix) or mimetypes.guess_type(path)[0] or "text/plain"
    entity: Entity = {"name": path, "encodingFormat": kind, "sha256": _sha256(content)}
    entity["contentSize"] = str(len(content) if isinstance(content, bytes) else content.stat().st_size)
    return entity | ({"conformsTo": {"@id": CROISSANT}} if suffix == ".jsonld" else {})


def _sha256(content: Content) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def croissant(data: Prepared) -> bytes:
    """A data set in Croissant: its prepared arrays by name, size and hash, and where to get it. Not the data itself."""
    known = DATASETS.get(data.name)
    described = {
        "@context": {
            **{"@language": "en", "@vocab": "https://schema.org/", "sc": "https://schema.org/"},
            **{
                "cr": "http://mlcommons.org/croissant/",
                "dct": "http://purl.org/dc/terms/",
                "conformsTo": "dct:conformsTo",
            },
        },
        "@type": "sc:Dataset",
        "conformsTo": CROISSANT,
        "name": data.name,
        "description": f"{known.summary}: {known.where}" if known else "data of the archive's author",
        "identifier": f"sha256:{data.sha256}",
        "distribution": [
            {
                **{"@type": "cr:FileObject", "@id": each.name, "name": each.name, "contentUrl": each.name},
                **{"encodingFormat": "application/x-npy", "contentSize": f"{each.stat().st_size} B"},
                "sha256": _sha256(each),
            }
            for each in sorted(data.directory.glob("*.npy"))
        ],
    }
    return (json.dumps(described, indent=1) + "\n").encode()
