"""Reading a text file that a user names, and the question in its first comment."""

from __future__ import annotations

import functools
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from orchestrator.record.kept_files import LARGEST_FILE

DIRECTORY = "directory"  # key of the validation context: the folder that relative paths start at
FILES = "files"  # key of the validation context: texts of files by name; these files are not read
STANDARD_INPUT = Path("-")
TIME = re.compile(r"(?P<time>.+) on two cores, (?P<driver>[a-z]+)")  # a line of the first comment, for `examples`
_MODELINE = re.compile("yaml-language-server:")


def text_of(file: Path, longest: int, longer: str) -> str:
    """The text of a file of at most ``longest`` characters. Devices and pipes are refused without reading. Raises
    ValueError with the reason; the reason for a longer text is ``longer``."""
    try:
        mode = file.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ValueError("it is a folder")
        if not stat.S_ISREG(mode):
            raise ValueError("it is no regular file")
        with file.open(encoding="utf-8") as opened:
            text = opened.read(longest + 1)
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    if len(text) > longest:
        raise ValueError(longer)
    return text


def named_text(
    name: str,
    context: Mapping[str, Any] | None,
    advice: str = "",
) -> str:
    """The text of a file that a scenario names. ``advice``: if it is too large. Raises ValueError."""
    context = context or {}
    texts: Mapping[str, str] = context.get(FILES, {})
    if name in texts:
        return texts[name]
    path = Path(context.get(DIRECTORY, "."), name)
    try:
        return text_of(path, LARGEST_FILE, f"is larger than {LARGEST_FILE // 10**6} MB{advice}")
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}; paths begin at the scenario's file") from None


def piped_text(file: Path) -> str | None:
    """The text of standard input if the file is ``-``. It is read once. ValueError if it is no text."""
    if file != STANDARD_INPUT:
        return None
    return _whole(sys.stdin)


@functools.cache
def _whole(stream: TextIO) -> str:
    try:
        return stream.read()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None


def head_comment(text: str) -> list[str]:
    """The lines of the comment at the start of a YAML text."""
    comment: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            comment.append(line.lstrip("# ").rstrip())
        elif comment or line.strip():
            break
    return comment


def first_comment(text: str) -> str:
    """The head comment in one line: the question that a scenario or a sweep answers. Lines for editors and for the
    list of examples are left out. Empty if the text does not start with a comment."""
    question = []
    for line in head_comment(text):
        is_for_tools = _MODELINE.match(line) or TIME.fullmatch(line)
        if not is_for_tools:
            question.append(line)
    return " ".join(question)
