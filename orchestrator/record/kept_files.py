"""The files of a scenario that a run's directory keeps: their folder and names.

They are in a separate folder, and their names start with their hash, so that they overwrite neither each other nor the
run's own files.
"""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePath

from node.files import read_untrusted

LARGEST_FILE = 64_000_000  # characters; an hour of a trace of 100 Mbit/s
MOST_BYTES = 4 * LARGEST_FILE
FOLDER = "files"


def find_file(directory: Path, name: str, sha256: str) -> str | None:
    """The text of a kept file; None if it is missing or its hash differs."""
    place = place_of(directory, name, sha256)
    try:
        text = read_untrusted(place, MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        return None
    if hash_of(text) != sha256:
        return None
    return text


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def place_of(directory: Path, name: str, sha256: str) -> Path:
    # a file system allows 255 bytes: 12 of the hash, a dash, and 242 of the name, which may end inside a character
    ending = PurePath(name).name[-100:].encode()[-242:]
    readable = ending.decode(errors="ignore")
    return directory / FOLDER / f"{sha256[:12]}-{readable}"
