"""Text forms of values and paths for error messages, and the names of scenarios and sweeps."""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

KeyPath = tuple[str | int, ...]  # the keys that lead to a value


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
    if len(text) > length:
        text = f"{text[: length - 3]}..."
    return printable(text)


def printable(text: str) -> str:
    """A text with its unprintable characters (cursor movements, terminal colours) written as escapes."""
    characters = []
    for character in text:
        if character.isprintable():
            characters.append(character)
        else:
            characters.append(character.encode("unicode_escape").decode())
    return "".join(characters)


LONGEST = 40  # characters of a name, which the names of run directories start with
_PATTERN = r"^[a-z0-9][a-z0-9-]{0,39}$"


def name_from(text: str, otherwise: str) -> str:
    """Convert a text to a valid name: ``My_Study`` gives ``my-study``; ``otherwise`` if no character is valid."""
    decomposed = unicodedata.normalize("NFKD", text)
    plain = decomposed.encode("ascii", "ignore").decode()
    hyphenated = re.sub(r"[^a-z0-9]+", "-", plain.lower())
    name = hyphenated.strip("-")[:LONGEST].rstrip("-")
    return name or otherwise


def _check_name(name: str) -> str:
    if not re.fullmatch(_PATTERN.removesuffix("$"), name):
        raise ValueError(
            f"'{shortened(name)}' cannot be a name: write at most {LONGEST} lower-case letters, digits and hyphens, "
            f"a hyphen not first, like {name_from(name, 'my-study')}"
        )
    return name


Name = Annotated[str, AfterValidator(_check_name), WithJsonSchema({"type": "string", "pattern": _PATTERN})]


def _check_image(name: str) -> str:
    if name.split() != [name]:
        raise ValueError(
            f"'{shortened(name)}' cannot be an image: write its name without blanks, like edgebed-node:arm64"
        )
    return name


ImageName = Annotated[str, AfterValidator(_check_image), WithJsonSchema({"type": "string", "pattern": r"^\S+$"})]
