"""Writes an archive: one or more complete runs, with everything to repeat and check them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import sqlite3
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import Distribution, distributions, version
from pathlib import Path
from typing import Any

from orchestrator.archive import crate
from orchestrator.archive.crate import ArchivedRun, Content
from orchestrator.archive.expected import FILE, Expected, expected_run
from orchestrator.errors import MistakeError, RunError
from orchestrator.exports.destinations import require
from orchestrator.host.places import check_file
from orchestrator.planning.copies.scenario_folder import entries, refuse_large
from orchestrator.planning.learning.dataset import looked_up
from orchestrator.record import kept_files
from orchestrator.record.damage import using_record
from orchestrator.record.directory import RunDirectory
from orchestrator.record.schema import DATABASE
from orchestrator.results.history import History
from orchestrator.run.launch import kept_origin
from orchestrator.run.options import Origin
from orchestrator.scenario.language.strict import unknown
from orchestrator.sweep.reading import COPY, Target
from orchestrator.verbs.python_interface import RUNS
from orchestrator.verbs.results.export import find_runs, find_table, read_table

RUN_FILES = ("scenario.yaml", "effective.json", "plan.json", "summary.json", "report.html")
SWEEP_FILES = (COPY, "sweep.json", "sweep.md", "sweep.html")
SCENARIO_FOLDER = "scenario"
"""The folder of an archive with the files that the scenario's programs read."""

Packages = Mapping[str, Mapping[str, str]]

SCRIPT = """\
#!/bin/sh
# Repeats the runs of an archive of edgebed in a fresh environment, and compares their figures:
#     unzip ARCHIVE.zip reproduce.sh constraints.txt && sh reproduce.sh ARCHIVE.zip
# Further arguments are those of `edgebed reproduce`, such as --trust. The variable EDGEBED names another source of
# edgebed, such as a wheel. Exit code: 0 confirmed, 1 not confirmed, other: not possible here.
folder=$(dirname "$0")
python3 -m venv "$folder/environment" &&
    "$folder/environment/bin/pip" install -q -c "$folder/constraints.txt" "${EDGEBED:-PACKAGE}" || exit 4
exec "$folder/environment/bin/edgebed" reproduce "$@"
"""


def archive(
    run: str | os.PathLike[str] | None = None,
    file: str | os.PathLike[str] | None = None,
    *,
    runs: str | os.PathLike[str] = RUNS,
    tolerances: Mapping[str, str | float] | None = None,
    authors: Sequence[str] = (),
    license: str | None = None,
) -> Path:
    """Write a run, or a sweep with all its runs, into one zip file that `reproduce` can repeat on another host.

    ``run`` is the id or the directory of a run, or the name or directory of a sweep; by default the latest run.
    ``file`` is by default named after it. ``tolerances``: by how much figures may differ if a repetition cannot be
    exact, such as ``{"final.global": 0.03, "seconds": "20%"}``. ``authors`` are names, and ``license`` a
    name or an address such as "https://spdx.org/licenses/CC-BY-4.0"; both are for the description. Returns the path of
    the file.

    MistakeError if a tolerance is not a number. RunError if a run is not complete, if packages or data have changed
    since the run, or if the package rocrate is missing.
    """
    require(("rocrate",), crate.EXTRA)
    named = None if run is None else os.fspath(run)
    table = find_table(named, Path(runs))
    wanted = [named] if named else []
    directories = find_runs(wanted, Path(runs))
    if table is None:
        name = directories[0].run
    else:
        name = table.resolve().parent.name
    place = Path(f"{name}.zip" if file is None else file)
    check_file(place, "choose another file")
    files: dict[str, Content] = {}
    target = None
    if table is not None:
        with using_record(table.parent):
            sweep = read_table(table)
            files |= _files_of_sweep(table.resolve().parent)
            if sweep["target"]:
                target = Target.model_validate(sweep["target"])
            done = _runs_done(sweep)
            planned = sweep["planned"]
        if done != planned:
            raise RunError(f"{name} has {done} of {planned} runs: complete it with `sweep`")
    tolerances = tolerances or {}
    archived: list[ArchivedRun] = []
    installed = packages()
    with tempfile.TemporaryDirectory(prefix="edgebed-") as temporary:
        for directory in directories:
            run_archived, own = _archived(directory, target, tolerances, installed, Path(temporary))
            archived.append(run_archived)
            files |= own
        known = set[str]()
        for archived_run in archived:
            known |= archived_run.expected.figures.keys()
        for figure in tolerances.keys() - known:
            raise MistakeError(f"tolerance: {unknown(f'figure of {name}', figure, sorted(known))}")
        has_data = any(archived_run.data for archived_run in archived)
        extra = "[learning]" if has_data else ""
        package = f"edgebed{extra}=={version('edgebed')}"
        results = {}
        for archived_run in archived:
            results[archived_run.directory.run] = archived_run.expected
        expected = Expected(target=target, runs=results)
        files |= {
            FILE: _json(expected.model_dump(mode="json")),
            "environment.json": _json(installed),
            "constraints.txt": constraints(installed).encode(),
            "reproduce.sh": SCRIPT.replace("PACKAGE", package).encode(),
        }
        release = version("edgebed")
        description = crate.describe(name, files, archived, release, authors, license)
        files[crate.METADATA] = description
        _write(place, files)
    return place


def _files_of_sweep(folder: Path) -> dict[str, Content]:
    files: dict[str, Content] = {}
    for name in SWEEP_FILES:
        path = folder / name
        if _is_own(path):
            files[name.removeprefix(".")] = path
    return files


def _runs_done(sweep: Mapping[str, Any]) -> int:
    """The number of runs that a sweep has. Cases may share a run."""
    done = 0
    for case in sweep["cases"]:
        for row in case["runs"]:
            if row["run"] is not None:
                done += 1
    return done


def _archived(
    directory: RunDirectory,
    target: Target | None,
    tolerances: Mapping[str, str | float],
    installed: Packages,
    temporary: Path,
) -> tuple[ArchivedRun, dict[str, Content]]:
    """A run, and its files in the archive. Its record is copied into the folder ``temporary``."""
    files: dict[str, Content] = {}
    with History.open(directory.path) as history:
        result = expected_run(history, target, tolerances)
        _refuse_changed_packages(history, installed)
        origin = kept_origin(directory)
        data = None
        if origin.scenario.algorithm is not None:
            data, content = _description_of_data(origin, history)
            files[data] = content
    if origin.scenario.programs:
        files |= files_of_programs(origin.file.parent)
    run = ArchivedRun(directory, f"runs/{directory.run}/", result, data)
    return run, files | _files_of_run(run, temporary / directory.run)


def _files_of_run(run: ArchivedRun, temporary: Path) -> dict[str, Content]:
    """The files of a complete run for its report and repetition. Its record is copied to a new folder ``temporary``."""
    own = run.directory
    own.refuse_held()
    temporary.mkdir()
    record_uri = (own.path / DATABASE).as_uri()
    with (
        contextlib.closing(sqlite3.connect(f"{record_uri}?mode=ro", uri=True)) as record,
        contextlib.closing(sqlite3.connect(temporary / DATABASE)) as copy,
    ):
        record.backup(copy)  # with what is still in its write-ahead log
        copy.execute("PRAGMA journal_mode = DELETE")
    paths = [own.path / name for name in RUN_FILES]
    traces = own.path / kept_files.FOLDER
    paths += sorted(traces.rglob("*"))
    paths += sorted(own.plugins.rglob("*"))
    files: dict[str, Content] = {}
    for path in paths:
        if _is_own(path):
            relative = path.relative_to(own.path)
            files[f"{run.folder}{relative}"] = path
    files[f"{run.folder}{DATABASE}"] = temporary / DATABASE
    return files


def _is_own(path: Path) -> bool:
    """Whether this is a file in the resolved folder of a run. No link leads a file from elsewhere into the archive."""
    return path.is_file() and path.resolve() == path


def files_of_programs(folder: Path) -> dict[str, Content]:
    """The scenario's folder, as hosts get it. RunError if it has links."""
    refuse_large(folder)
    files: dict[str, Content] = {}
    paths = list(entries(folder))
    for path in paths:
        if path.is_symlink():
            raise RunError(f"{path} is a link, which an archive cannot contain: replace it with a copy")
    for path in paths:
        if path.is_file():
            relative = path.relative_to(folder)
            files[f"{SCENARIO_FOLDER}/{relative}"] = path
    return files


def _description_of_data(origin: Origin, history: History) -> tuple[str, bytes]:
    """The file in an archive that describes the data set of a run, and its content."""
    scenario = origin.scenario
    with looked_up(scenario.data, origin.file.parent, scenario.catalogue.datasets) as data:
        if data.sha256 != history.plan["data"]["sha256"]:
            raise RunError(f"the data set {data.name} has changed since {history.run}: run it again")
        described = crate.croissant(data, scenario.catalogue.datasets)
        return f"data/{data.directory.name}.jsonld", described


def _refuse_changed_packages(history: History, installed: Packages) -> None:
    used_packages = history.meta.get("packages", {})
    for name, used in used_packages.items():
        current = installed.get(name, {}).get("version")
        if used != current:
            raise RunError(
                f"{history.run} used {name} {used}, but {current or 'none'} is installed: run it again, or archive it "
                "where it ran"
            )


@cache
def packages() -> Packages:
    """Version and hash of each installed package, by name. The hash covers the hashes of its files in RECORD, without
    files that an installer adds; "" if there are none. What a failed uninstallation left has no name."""
    by_name = {}
    for package in reversed([*distributions()]):  # Python imports the first one
        if package.name:
            by_name[package.name] = package
    installed = {}
    for name in sorted(by_name, key=str.lower):
        package = by_name[name]
        sha256 = _hash(package)
        installed[name] = {"version": package.version, "sha256": sha256}
    return installed


def _hash(package: Distribution) -> str:
    lines = []
    for file in package.files or ():
        if file.hash is None or ".." in file.parts:
            continue
        if file.parts[0].endswith(".dist-info"):
            continue
        lines.append(f"{file} {file.hash}")
    if not lines:
        return ""
    text = "\n".join(sorted(lines))
    return hashlib.sha256(text.encode()).hexdigest()


def constraints(installed: Packages) -> str:
    """The versions for pip's option --constraint, without edgebed and without labels of builds such as +cpu."""
    lines = []
    for name, package in installed.items():
        if name == "edgebed":
            continue
        version, _, _ = package["version"].partition("+")
        if version:
            lines.append(f"{name}=={version}\n")
    return "".join(lines)


def _write(place: Path, files: Mapping[str, Content]) -> None:
    """Write a zip file in one step. RunError if that fails, for instance if there is no room."""
    part = place.with_name(f".archive.{secrets.token_hex(8)}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(part, "x", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for path, content in sorted(files.items()):
                if isinstance(content, Path):
                    archive.write(content, path)
                else:
                    archive.writestr(path, content)
        part.replace(place)
    except OSError as error:
        raise RunError(f"{place} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def _json(value: object) -> bytes:
    text = json.dumps(value, indent=1)
    return f"{text}\n".encode()
