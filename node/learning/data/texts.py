"""Reader of plain text as sequences of characters, with the author of each.

A folder has a file or a folder of files for each author. A text is cut into adjacent windows of `WINDOW` characters.
The label of a character is the next character.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from node.arrays import Integers
from node.learning.data.files import TOOLS, below, read_text, refuse_large
from node.learning.data.formats import TOKEN, Arrays
from node.learning.errors import DataError

Codes = NDArray[np.uint32]  # of characters

WINDOW = 64  # characters
TEST = 5  # one window in five of an author, the last ones, is in the test part
EXPANSION = 32  # bytes of arrays for each byte of text, at most
ABOUT = {"readme", "license", "licence", "copying"}  # names, without suffix, of files about a folder of texts
LEFT_BY_SYSTEMS = {".db", ".ini"}  # suffixes: Thumbs.db, desktop.ini


def _is_stray(file: PurePosixPath) -> bool:
    """Whether a file is hidden, of a tool or system, or about the folder (README.md next to the authors)."""
    hidden = any(map(_is_hidden, file.parts))
    in_folder_itself = len(file.parts) == 1
    about = in_folder_itself and file.stem.lower() in ABOUT
    return hidden or about or file.suffix.lower() in LEFT_BY_SYSTEMS


def _is_hidden(part: str) -> bool:
    return part.startswith(".") or part in TOOLS


def read_texts(path: Path) -> Arrays:
    """Windows x (N, 64) and the next characters y (N, 64). A character is its number among all characters that occur.
    Authors are numbered in order of their names. What is no text of an author by its name (`_is_stray`) is left out."""
    if path.is_file():
        raise DataError(f"{path}: is a file; write a folder with a file or a folder of files for each author")
    names = []
    for name in sorted(below(path)):
        if not _is_stray(PurePosixPath(name)):
            names.append(name)
    files = [name for name in names if (path / name).is_file()]
    size = sum((path / name).stat().st_size for name in files)
    refuse_large(path, EXPANSION * size)
    parts: dict[str, list[Codes]] = {}
    for name in files:
        content = read_text(path / name)
        if "\0" in content:
            raise DataError(f"{path / name}: holds the character NUL, as binary files do; leave it out")
        utf_32 = content.encode("utf-32-le")
        codes = np.frombuffer(utf_32, np.dtype("<u4"))
        author = name.partition("/")[0]
        parts.setdefault(author, []).append(codes)
    if not parts:
        raise DataError(f"{path}: has no texts; write a file or a folder of files for each author")
    texts = {}
    for author, of_author in parts.items():
        texts[author] = np.concatenate(of_author)
    characters = [np.unique(text) for text in texts.values()]
    alphabet = np.unique(np.concatenate(characters))
    train = []
    test = []
    for number, (author, text) in enumerate(texts.items()):
        count = (len(text) - 1) // WINDOW
        if count < 2:
            raise DataError(f"{path / author}: has {len(text)} characters; an author needs {2 * WINDOW + 1} or more")
        used = text[: count * WINDOW + 1]
        tokens = np.searchsorted(alphabet, used).astype(TOKEN)
        x = tokens[:-1].reshape(-1, WINDOW)
        next_tokens = tokens[1:].astype(np.int64)
        y = next_tokens.reshape(-1, WINDOW)
        subjects = np.full(count, number)
        cut = count - max(1, count // TEST)
        of_train = _Windows(x[:cut], y[:cut], subjects[:cut])
        of_test = _Windows(x[cut:], y[cut:], subjects[cut:])
        train.append(of_train)
        test.append(of_test)
    of_train = _concatenated(train)
    of_test = _concatenated(test)
    return Arrays(
        x_train=of_train.x,
        y_train=of_train.y,
        x_test=of_test.x,
        y_test=of_test.y,
        subjects=of_train.subjects,
        test_subjects=of_test.subjects,
    )


class _Windows(NamedTuple):
    """Windows x (N, 64), the next characters y (N, 64), and the author of each window (N,)."""

    x: NDArray[np.int32]
    y: Integers
    subjects: Integers


def _concatenated(of_authors: Sequence[_Windows]) -> _Windows:
    x = np.concatenate([windows.x for windows in of_authors])
    y = np.concatenate([windows.y for windows in of_authors])
    subjects = np.concatenate([windows.subjects for windows in of_authors])
    return _Windows(x, y, subjects)
