"""Hashes of files, and the hash by which a folder of files is the same on all hosts."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path


def hash_of_file(file: Path) -> str:
    """SHA-256 of the content of a file."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
    return digest.hexdigest()


def hash_of_files(folder: Path) -> str:
    """SHA-256 over the names, sizes and contents of the files in a folder, see `files_in`."""
    digest = hashlib.sha256()
    for file in files_in(folder):
        size = file.stat().st_size
        line = f"{hash_of_file(file)} {size} {file.name}\n"
        digest.update(line.encode())
    return digest.hexdigest()


def files_in(folder: Path) -> list[Path]:
    """The files in a folder by name, without those in folders below it."""
    return sorted(path for path in folder.iterdir() if path.is_file())


def is_hash(word: str) -> bool:
    return re.fullmatch("[0-9a-f]{64}", word) is not None
