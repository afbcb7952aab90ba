"""Unpacks archives that others wrote. All entries are checked before anything is written."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from orchestrator.archive.crate import METADATA
from orchestrator.errors import ArchiveError

MOST_FILES = 100_000
MOST_BYTES = 8_000_000_000  # of all files
MOST_METADATA = 100_000_000  # bytes of ro-crate-metadata.json
SMALL = 100_000_000  # bytes; more must not be compressed by more than MOST_RATIO
MOST_RATIO = 100
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError)


def unpack(file: Path, folder: Path) -> list[str]:
    """Unpack an archive into a folder. Returns the files that differ from the hashes in the archive's description.

    ArchiveError, before anything is written, if the archive is damaged. All entries must be regular files with
    different paths below the archive's folder, of a plausible size. Also ArchiveError if the files cannot be written.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            every_entry = archive.infolist()
            _check(every_entry, file.stat().st_size)
            entries = [entry for entry in every_entry if not entry.is_dir()]
            hashes = {}
            for entry in entries:
                hashes[entry.filename] = _hash(archive, entry)
            changed = _changed(archive, hashes)
            for entry in entries:
                _unpack_entry(archive, entry, folder / entry.filename)
    except _BROKEN as error:
        reason = getattr(error, "strerror", None) or error
        raise ArchiveError(f"{file} cannot be unpacked: {reason}") from None
    return changed


def _unpack_entry(
    archive: zipfile.ZipFile,
    entry: zipfile.ZipInfo,
    place: Path,
) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(entry) as source, place.open("xb") as target:
        shutil.copyfileobj(source, target)
    is_executable = _mode(entry) & 0o100
    place.chmod(0o755 if is_executable else 0o644)


def _mode(entry: zipfile.ZipInfo) -> int:
    """The type and permissions of a file, which zip files of Unix have in the upper half."""
    return entry.external_attr >> 16


def _check(entries: list[zipfile.ZipInfo], size: int) -> None:
    """ArchiveError if it is not safe to unpack these entries. ``size``: of the archive in bytes."""
    for entry in entries:
        _check_entry(entry)
    count = len(entries)
    whole = sum(entry.file_size for entry in entries)
    compressed = sum(entry.compress_size for entry in entries)
    plausible = min(MOST_BYTES, max(SMALL, MOST_RATIO * size))
    if compressed > size or count > MOST_FILES or whole > plausible:
        raise ArchiveError(
            f"the archive is not unpacked: its {size:,} bytes cannot be {count:,} files of {whole:,} bytes"
        )
    names = {entry.filename.removesuffix("/") for entry in entries}
    if len(names) < count:  # names that clash otherwise fail on the disk
        raise ArchiveError("the archive is not unpacked: it has two files of the same name")


def _check_entry(entry: zipfile.ZipInfo) -> None:
    name = entry.orig_filename
    steps = name.removesuffix("/").split("/")
    is_plain = "\\" not in name and all(map(_is_plain, steps))
    if name != entry.filename or not is_plain:
        raise ArchiveError(f"the archive is not unpacked: its file {name!r} may lead out of its folder")
    expected_kind = stat.S_IFDIR if entry.is_dir() else stat.S_IFREG
    kind = stat.S_IFMT(_mode(entry))
    if kind not in (0, expected_kind):
        raise ArchiveError(f"the archive is not unpacked: its {name} is a link or a device")
    is_encrypted = entry.flag_bits & 1
    is_usual = entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if is_encrypted or not is_usual:
        raise ArchiveError(f"the archive is not unpacked: its {name} is encrypted, or compressed in an unusual way")


def _is_plain(part: str) -> bool:
    if part in ("", ".", ".."):
        return False
    if not part.isprintable():
        return False
    return len(part.encode()) <= 255


def _hash(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> str:
    with archive.open(entry) as file:  # it ends after the size that was checked, or fails
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # it has readinto


def _changed(
    archive: zipfile.ZipFile,
    hashes: Mapping[str, str],
) -> list[str]:
    """The files with other hashes than in the description, and the files that only the archive or only it has."""
    usable = METADATA in hashes and archive.getinfo(METADATA).file_size <= MOST_METADATA
    if not usable:
        raise ArchiveError(f"this is no archive of edgebed: it has no usable {METADATA}")
    described = {}
    try:
        metadata = json.loads(archive.read(METADATA))
        graph = metadata["@graph"]
        for entity in graph:
            if "sha256" in entity:
                name = unquote(entity["@id"])
                described[name] = entity["sha256"]
    except (LookupError, TypeError, AttributeError, RecursionError, ValueError) as error:
        raise ArchiveError(f"{METADATA} of the archive cannot be read: {error}") from None
    names = hashes.keys() | described.keys()
    names.discard(METADATA)
    changed = []
    for name in sorted(names):
        if hashes.get(name) != described.get(name):
            changed.append(name)
    return changed
