"""Reading a text file that a user names, and the question in its first comment."""

from __future__ import annotations

import stat
from pathlib import Path


def text_of(file: Path, longest: int, longer: str) -> str:
    """The text of a file of at most ``longest`` characters. Devices and pipes are refused without reading.

    Raises ValueError with the reason; the reason for a longer text is ``longer``.
    """
    try:
        mode = file.stat().st_mode
        if not stat.S_ISREG(mode):
            raise ValueError("it is a folder" if stat.S_ISDIR(mode) else "it is no regular file")
        with file.open(encoding="utf-8") as opened:
            text = opened.read(longest + 1)
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    if len(text) > longest:
        raise ValueError(longer)
    return text


def first_comment(text: str) -> str:
    """The first comment of a YAML text, in one line: the question that a scenario or a sweep is to answer. Empty if the
    text does not begin with a comment."""
    comment: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            comment.append(line.lstrip("# ").rstrip())
        elif comment or line.strip():
            break
    return " ".join(comment)
