"""The description of an archive as an RO-Crate, and of its data sets in Croissant.

RO-Crate 1.1: https://w3id.org/ro/crate/1.1. Process Run Crate 0.5: https://w3id.org/ro/wfrun/process/0.5.
Croissant 1.0: http://mlcommons.org/croissant/1.0.
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from node.catalogue.datasets import Dataset
from node.learning.data.datasets import Prepared
from orchestrator.archive.expected import ExpectedRun
from orchestrator.exports.destinations import imported
from orchestrator.host.hashes import hash_of_file
from orchestrator.record.directory import RunDirectory
from orchestrator.results.history import History

EXTRA = "archive"
METADATA = "ro-crate-metadata.json"
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
CROISSANT = "http://mlcommons.org/croissant/1.0"
HOME = "https://github.com/edgebed/edgebed"
_TERMS = {"sha256": "https://w3id.org/ro/terms/workflow-run#sha256"}
_TYPES = {".yaml": "application/yaml", ".db": "application/vnd.sqlite3", ".jsonld": "application/ld+json"}
_HOST = ("cpu", "cores", "memory", "kernel", "platform", "python")
_UNITS = {"rtt": "s", "loss": "fraction", "rate": "bit/s"}

Content = bytes | Path


class ArchivedRun(NamedTuple):
    """A run, its folder in an archive, its expected result, and the file that describes its data set, if any."""

    directory: RunDirectory
    folder: str
    expected: ExpectedRun
    data: str | None

    @property
    def title(self) -> str:
        return f"{self.expected.case}, seed {self.expected.seed}, {self.expected.driver}"


def describe(
    name: str,
    files: Mapping[str, Content],
    runs: Sequence[ArchivedRun],
    version: str,
    authors: Sequence[str],
    license: str | None,
) -> bytes:
    """The content of ro-crate-metadata.json, with the hash of each file. RunError without the package rocrate."""
    library = imported("rocrate.rocrate", EXTRA)
    models = imported("rocrate.model", EXTRA)
    crate = library.ROCrate(version="1.1")
    crate.metadata.extra_terms |= _TERMS

    def add(identifier: str, kind: str, **properties: Any) -> Any:
        typed = {"@type": kind, **properties}
        entity = models.ContextEntity(crate, identifier, typed)
        return crate.add(entity)

    people = []
    for author in authors:
        identifier = f"#{author.replace(' ', '-')}"
        people.append(add(identifier, "Person", name=author))
    software = {"name": "edgebed", "url": HOME, "softwareVersion": version}
    edgebed = add(f"{HOME}#{version}", "SoftwareApplication", **software)
    parts = {}
    for path, content in files.items():
        facts = _file(path, content)
        file = models.File(crate, dest_path=path, properties=facts)
        parts[path] = crate.add(file)
    actions = []
    for run in runs:
        own = {}
        for path, part in parts.items():
            if path.startswith(run.folder):
                own[path] = part
        what = {"name": run.title, "description": "one run of the scenario: its plan, record and report"}
        dataset = models.Dataset(crate, dest_path=run.folder, properties=what)
        folder = crate.add(dataset)
        folder["hasPart"] = [*own.values()]
        with History.open(run.directory.path) as history:
            started = datetime.strptime(history.meta["started"], "%Y-%m-%dT%H:%M:%S%z")
            wall = history.outcome and history.outcome.wall
            ended = started + timedelta(seconds=wall or 0.0)
            measured = []
            for fact in _facts(history, run.expected):
                identifier = f"#{run.folder}{fact['name'].replace(' ', '-')}"
                measured.append(add(identifier, "PropertyValue", **fact))
            folder["variableMeasured"] = measured
        action = add(
            f"#{run.folder}run",
            "CreateAction",
            **what,
            startTime=started.isoformat(),
            endTime=ended.isoformat(timespec="seconds"),
            instrument=edgebed,
        )
        inputs = [own.pop(f"{run.folder}scenario.yaml")]
        if run.data:
            inputs.append(parts[run.data])
        action["object"] = inputs
        action["result"] = [folder, *own.values()]
        action["agent"] = people[:1]
        actions.append(action)
    root = crate.root_dataset
    root["name"] = name
    root["description"] = f"Runs of edgebed, with everything to repeat them: edgebed reproduce {name}.zip"
    profile = {"name": "Process Run Crate", "version": "0.5"}
    root["conformsTo"] = add(PROFILE, "CreativeWork", **profile)
    if license:
        about = {"name": license, "description": "the licence of this archive"}
        root["license"] = add(license, "CreativeWork", **about)
    else:
        root["license"] = "ask the author"
    root["author"] = people
    root["mentions"] = actions
    graph = crate.metadata.generate()
    entities = graph["@graph"]
    graph["@graph"] = [_compact(entity) for entity in entities]
    return _json(graph)


def _compact(entity: Mapping[str, Any]) -> dict[str, Any]:
    """An entity without empty lists, and with a single value without its list, as RO-Crate prefers it."""
    compact = {}
    for key, value in entity.items():
        if value == []:
            continue
        if isinstance(value, list) and len(value) == 1:
            compact[key] = value[0]
        else:
            compact[key] = value
    return compact


def _json(value: Mapping[str, Any]) -> bytes:
    text = json.dumps(value, indent=1)
    return f"{text}\n".encode()


def _facts(
    history: History,
    expected: ExpectedRun,
) -> Iterator[dict[str, Any]]:
    """Verdict, figures and host of a run. Its links as configured, by class or pair. Its links as measured: the mean,
    lowest and highest value of each quantity, by class."""
    yield {"name": "verdict", "value": expected.verdict}
    for name, figure in expected.figures.items():
        yield {"name": name, "value": figure.expected}
    for key in _HOST:
        if key in history.meta:
            yield {"name": f"host {key}", "value": history.meta[key]}
    links = history.effective.get("links", {})
    for name, settings in links.items():
        yield {"name": f"links {name}, configured", "value": json.dumps(settings)}
    measured: dict[tuple[str, str], list[float]] = {}
    for probe in history.probes():
        if probe.measured is None:
            continue
        quantity_of_class = (probe.link_class, probe.quantity)
        values = measured.setdefault(quantity_of_class, [])
        values.append(probe.measured)
    for (name, quantity), values in measured.items():
        yield {
            "name": f"links {name} {quantity}, measured",
            "value": fmean(values),
            "minValue": min(values),
            "maxValue": max(values),
            "unitText": _UNITS.get(quantity, ""),
        }


def _file(path: str, content: Content) -> dict[str, Any]:
    suffix = Path(path).suffix
    guessed, _ = mimetypes.guess_type(path)
    kind = _TYPES.get(suffix) or guessed or "text/plain"
    if isinstance(content, bytes):
        size = len(content)
        sha256 = hashlib.sha256(content).hexdigest()
    else:
        size = content.stat().st_size
        sha256 = hash_of_file(content)
    entity: dict[str, Any] = {
        "name": path,
        "encodingFormat": kind,
        "sha256": sha256,
        "contentSize": str(size),
    }
    if suffix == ".jsonld":
        entity["conformsTo"] = {"@id": CROISSANT}
    return entity


def croissant(data: Prepared, known: Mapping[str, Dataset]) -> bytes:
    """A data set in Croissant: its prepared arrays by name, size and hash, and where to get it. Not the data itself.
    ``known``: the data sets of the run's catalogue."""
    entry = known.get(data.name)
    if entry:
        description = f"{entry.summary}: {entry.where}"
    else:
        description = "data of the archive's author"
    arrays = sorted(data.directory.glob("*.npy"))
    return _json(
        {
            "@context": {
                "@language": "en",
                "@vocab": "https://schema.org/",
                "sc": "https://schema.org/",
                "cr": "http://mlcommons.org/croissant/",
                "dct": "http://purl.org/dc/terms/",
                "conformsTo": "dct:conformsTo",
            },
            "@type": "sc:Dataset",
            "conformsTo": CROISSANT,
            "name": data.name,
            "description": description,
            "identifier": f"sha256:{data.sha256}",
            "distribution": [_file_object(file) for file in arrays],
        }
    )


def _file_object(file: Path) -> dict[str, str]:
    return {
        "@type": "cr:FileObject",
        "@id": file.name,
        "name": file.name,
        "contentUrl": file.name,
        "encodingFormat": "application/x-npy",
        "contentSize": f"{file.stat().st_size} B",
        "sha256": hash_of_file(file),
    }
