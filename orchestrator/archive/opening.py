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
SMALL, MOST_RATIO = 100_000_000, 100  # more bytes than SMALL must not be compressed by more than MOST_RATIO
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError)


def unpack(file: Path, folder: Path) -> list[str]:
    """Unpack an archive into a folder. Returns the files that differ from the hashes in the archive's description.

    ArchiveError, before anything is written, if the archive is damaged. All entries must be regular files with
    different paths below the archive's folder, of a plausible size. Also ArchiveError if the files cannot be written.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            _check(archive.infolist(), file.stat().st_size)
            entries = [each for each in archive.infolist() if not each.is_dir()]
            changed = _changed(archive, {each.filename: _hash(archive, each) for each in entries})
            for each in entries:
                place = folder / each.filename
                place.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(each) as source, place.open("xb") as target:
                    shutil.copyfileobj(source, target)
                place.chmod(0o755 if each.external_attr >> 16 & 0o100 else 0o644)
    except _BROKEN as error:
        raise ArchiveError(f"{file} cannot be unpacked: {getattr(error, 'strerror', None) or error}") from None
    return changed


def _check(entries: list[zipfile.ZipInfo], size: int) -> None:
    """ArchiveError if it is not safe to unpack these entries. ``size``: of the archive in bytes."""
    for each in entries:
        name = each.orig_filename
        kind = stat.S_IFMT(each.external_attr >> 16)
        if name != each.filename or "\\" in name or not all(map(_is_plain, name.removesuffix("/").split("/"))):
            raise ArchiveError(f"the archive is not unpacked: its file {name!r} may lead out of its folder")
        if kind not in (0, stat.S_IFDIR if each.is_dir() else stat.S_IFREG):
            raise ArchiveError(f"the archive is not unpacked: its {name} is a link or a device")
        if each.flag_bits & 1 or each.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ArchiveError(f"the archive is not unpacked: its {name} is encrypted, or compressed in an unusual way")
    whole = sum(each.file_size for each in entries)
    overlap = sum(each.compress_size for each in entries) > size
    if overlap or len(entries) > MOST_FILES or whole > min(MOST_BYTES, max(SMALL, MOST_RATIO * size)):
        raise ArchiveError(
            f"the archive is not unpacked: its {size:,} bytes cannot be {len(entries):,} files of {whole:,} bytes"
        )
    names = [each.filename.removesuffix("/") for each in entries]
    if len(set(names)) < len(names):  # names that clash otherwise fail on the disk
        raise ArchiveError("the archive is not unpacked: it has two files of the same name")


def _is_plain(part: str) -> bool:
    return part not in ("", ".", "..") and part.isprintable() and len(part.encode()) <= 255


def _hash(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> str:
    with archive.open(entry) as file:  # it ends after the size that was checked, or fails
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # it has readinto


def _changed(archive: zipfile.ZipFile, hashes: Mapping[str, str]) -> list[str]:
    """The files with other hashes than in the description, and the files that only the archive or only it has."""
    if METADATA not in hashes or archive.getinfo(METADATA).file_size > MOST_METADATA:
        raise ArchiveError(f"this is no archive of edgebed: it has no usable {METADATA}")
    try:
        graph = json.loads(archive.read(METADATA))["@graph"]
        described = {unquote(each["@id"]): each["sha256"] for each in graph if "sha256" in each}
    except (LookupError, TypeError, AttributeError, RecursionError, ValueError) as error:
        raise ArchiveError(f"{METADATA} of the archive cannot be read: {error}") from None
    return sorted(
        name
        for name in hashes.keys() | described.keys()
        if name != METADATA and hashes.get(name) != described.get(name)
    )
