"""Text forms of values and paths for error messages."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any


def dotted(path: Sequence[str | int]) -> str:
    """``("faults", 0, "at")`` as ``faults.0.at``, the form that `--set` takes."""
    return ".".join(printable(str(part)) for part in path)


def describe(value: Any) -> str:
    """A value in words: ``the text 'wifi'``, ``the number 3``, ``a mapping``, ``a list``."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"the truth value {str(value).lower()}"
        case str():
            return f"the text '{shortened(value)}'"
        case int() | float():
            return f"the number {value}"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case datetime.date():  # includes datetime
            return f"the date {value} (quotes make it a text)"
        case _:
            return shortened(repr(value))


def shortened(text: str, length: int = 60) -> str:
    """A text to quote in a message, cut to ``length`` characters."""
    return printable(text if len(text) <= length else f"{text[: length - 3]}...")


def printable(text: str) -> str:
    """A text whose unprintable characters (cursor movements, terminal colours) are written as escapes."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
