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

from orchestrator.archive import crate
from orchestrator.archive.crate import ArchivedRun, Content
from orchestrator.archive.expected import FILE, Expected, expected_run
from orchestrator.errors import MistakeError, RunError
from orchestrator.exports.kinds import require
from orchestrator.host.places import check_file
from orchestrator.planning.copies import trace_files
from orchestrator.planning.copies.scenario_folder import entries, refuse_large
from orchestrator.planning.learning.dataset import looked_up
from orchestrator.record.damage import using_record
from orchestrator.record.directory import RunDirectory
from orchestrator.record.writer import DATABASE
from orchestrator.results.history import History
from orchestrator.run.launch import kept_origin
from orchestrator.run.options import Origin
from orchestrator.scenario.language.strict import unknown
from orchestrator.scenario.plugins import kept
from orchestrator.sweep.reading import COPY, Target
from orchestrator.verbs.results.export import find_runs, find_table, read_table
from orchestrator.verbs.runs import RUNS

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
    directories = find_runs([named] if named else [], Path(runs))
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
            written = [path for name in SWEEP_FILES if _is_own(path := table.resolve().parent / name)]
            files = {path.name.removeprefix("."): path for path in written}
            target = sweep["target"] and Target.model_validate(sweep["target"])
            runs_of = [each["run"] for case in sweep["cases"] for each in case["runs"]]  # cases may share a run
            done = len(runs_of) - runs_of.count(None)
            planned = sweep["planned"]
        if done != planned:
            raise RunError(f"{name} has {done} of {planned} runs: complete it with `sweep`")
    archived: list[ArchivedRun] = []
    installed = packages()
    with tempfile.TemporaryDirectory(prefix="edgebed-") as temporary:
        for directory in directories:
            run_archived, own = _archived(directory, target, tolerances or {}, installed, Path(temporary))
            archived.append(run_archived)
            files |= own
        known = {figure for each in archived for figure in each.expected.figures}
        for figure in (tolerances or {}).keys() - known:
            raise MistakeError(f"tolerance: {unknown(f'figure of {name}', figure, sorted(known))}")
        package = f"edgebed{'[learning]' * any(each.data for each in archived)}=={version('edgebed')}"
        expected = Expected(target=target, runs={each.directory.run: each.expected for each in archived})
        files |= {
            FILE: _json(expected.model_dump(mode="json")),
            "environment.json": _json(installed),
            "constraints.txt": constraints(installed).encode(),
            "reproduce.sh": SCRIPT.replace("PACKAGE", package).encode(),
        }
        files[crate.METADATA] = crate.describe(name, files, archived, version("edgebed"), authors, license)
        _write(place, files)
    return place


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
    with (
        contextlib.closing(sqlite3.connect(f"{(own.path / DATABASE).as_uri()}?mode=ro", uri=True)) as record,
        contextlib.closing(sqlite3.connect(temporary / DATABASE)) as copy,
    ):
        record.backup(copy)  # with what is still in its write-ahead log
        copy.execute("PRAGMA journal_mode = DELETE")
    paths = [own.path / name for name in RUN_FILES]
    paths += sorted((own.path / trace_files.FOLDER).rglob("*")) + sorted(own.plugins.rglob("*"))
    files: dict[str, Content] = {f"{run.folder}{path.relative_to(own.path)}": path for path in paths if _is_own(path)}
    return files | {f"{run.folder}{DATABASE}": temporary / DATABASE}


def _is_own(path: Path) -> bool:
    """Whether this is a file in the resolved folder of a run. No link leads a file from elsewhere into the archive."""
    return path.is_file() and path.resolve() == path


def files_of_programs(folder: Path) -> dict[str, Content]:
    """The scenario's folder, as hosts get it. RunError if it has links."""
    refuse_large(folder)
    paths = list(entries(folder))
    links = [path for path in paths if path.is_symlink()]
    if links:
        raise RunError(f"{links[0]} is a link, which an archive cannot contain: replace it with a copy")
    return {f"{SCENARIO_FOLDER}/{path.relative_to(folder)}": path for path in paths if path.is_file()}


def _description_of_data(origin: Origin, history: History) -> tuple[str, bytes]:
    """The file in an archive that describes the data set of a run, and its content."""
    with kept(origin.scenario.plugins), looked_up(origin.scenario.data, origin.file.parent) as data:
        if data.sha256 != history.plan["data"]["sha256"]:
            raise RunError(f"the data set {data.name} has changed since {history.run}: run it again")
        return f"data/{data.directory.name}.jsonld", crate.croissant(data)


def _refuse_changed_packages(history: History, installed: Packages) -> None:
    for name, used in history.meta.get("packages", {}).items():
        if used != (current := installed.get(name, {}).get("version")):
            raise RunError(
                f"{history.run} used {name} {used}, but {current or 'none'} is installed: run it again, or archive it "
                "where it ran"
            )


@cache
def packages() -> Packages:
    """Version and hash of each installed package, by name. The hash covers the hashes of its files in RECORD, without
    files that an installer adds; "" if there are none. What a failed uninstallation left has no name."""
    found = {each.name: each for each in reversed([*distributions()]) if each.name}  # Python imports the first one
    installed = {name: {"version": each.version, "sha256": _hash(each)} for name, each in found.items()}
    return dict(sorted(installed.items(), key=lambda each: each[0].lower()))


def _hash(package: Distribution) -> str:
    files = [each for each in package.files or () if each.hash is not None and ".." not in each.parts]
    lines = sorted(f"{each} {each.hash}" for each in files if not each.parts[0].endswith(".dist-info"))
    if lines:
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return ""


def constraints(installed: Packages) -> str:
    """The versions for pip's option --constraint, without edgebed and without labels of builds such as +cpu."""
    versions = {name: each["version"].partition("+")[0] for name, each in installed.items() if name != "edgebed"}
    return "".join(f"{name}=={version}\n" for name, version in versions.items() if version)


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
    return (json.dumps(value, indent=1) + "\n").encode()
