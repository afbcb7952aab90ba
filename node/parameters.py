"""Parameters with their allowed values: frozen dataclasses whose fields are checked at construction."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar


@dataclass(frozen=True)
class Between:
    """The numbers allowed for a parameter. `above` excludes `low`, `below` excludes `high`. `none` allows None."""

    kind: type[int] | type[float]
    low: float
    high: float = math.inf
    above: bool = False
    below: bool = False
    none: bool = False

    def __contains__(self, value: object) -> bool:
        if value is None:
            return self.none
        if isinstance(value, bool) or not isinstance(value, (int, float) if self.kind is float else int):
            return False
        if self.above:
            low = value > self.low
        else:
            low = value >= self.low
        if self.below:
            high = value < self.high
        else:
            high = value <= self.high
        return low and high and math.isfinite(value)

    def __str__(self) -> str:
        bounds = [f"{'above' if self.above else 'at least'} {self.low:g}"]
        if math.isfinite(self.high):
            bounds.append(f"{'below' if self.below else 'at most'} {self.high:g}")
        noun = "a whole number" if self.kind is int else "a number"
        return f"{noun} {' and '.join(bounds)}{', or nothing' if self.none else ''}"


@dataclass(frozen=True)
class OneOf:
    """The words allowed for a parameter. `number` also allows numbers."""

    words: tuple[str, ...]
    number: Between | None = None

    def __contains__(self, value: object) -> bool:
        return value in self.words or (self.number is not None and value in self.number)

    def __str__(self) -> str:
        words = " or ".join(self.words)
        return f"{words} or {self.number}" if self.number else words


@dataclass(frozen=True)
class AnyOf(OneOf):
    """Any value of one type. ``noun``: what it is, for messages."""

    words: tuple[Any, ...] = ()
    kind: type = str
    noun: str = "a text"

    def __contains__(self, value: object) -> bool:
        return isinstance(value, self.kind)

    def __str__(self) -> str:
        return self.noun


def number(
    default: float | None,
    *,
    low: float,
    high: float = math.inf,
    above: bool = False,
    below: bool = False,
    none: bool = False,
) -> Any:
    """A number as a parameter, from ``low`` to ``high``. ``above`` excludes ``low``, ``below`` excludes ``high``.
    ``none`` allows None."""
    return field(default=default, metadata={"allowed": Between(float, low, high, above, below, none)})


def whole(default: int | None, *, low: int, none: bool = False) -> Any:
    """A whole number of at least ``low`` as a parameter. ``none`` allows None."""
    return field(default=default, metadata={"allowed": Between(int, low, none=none)})


def word(default: str | int, *words: str, number: Between | None = None) -> Any:
    """One of these words as a parameter. ``number``: the numbers that are allowed, too."""
    return field(default=default, metadata={"allowed": OneOf(words, number)})


def flag(default: bool) -> Any:
    """True or false as a parameter."""
    return field(default=default, metadata={"allowed": AnyOf((True, False), kind=bool, noun="true or false")})


def text() -> Any:
    """A text as a parameter, empty by default."""
    return field(default="", metadata={"allowed": AnyOf()})


def mapping() -> Any:
    """A mapping as a parameter, empty by default."""
    return field(default_factory=dict, metadata={"allowed": AnyOf(kind=dict, noun="a mapping")})


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Parameters whose fields carry their allowed values (`metadata["allowed"]`).

    A class with a field `profile` lists in ``profiles`` the values that each profile sets instead of the fields'
    defaults, see `read_parameters`. Its docstring has a line ``name: meaning`` for each field, see `meanings`. Raises
    ValueError naming the field, the value and the allowed values.
    """

    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @property
    def edge_rounds(self) -> int:
        """The number of rounds that an edge makes with its devices within one round of the run."""
        return 1

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """The meaning of each field, from the lines ``name: meaning`` in the docstrings of the class and its bases. A
        meaning's further lines are indented."""
        found: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            lines = re.findall(r"^(\w+): (.+(?:\n +.+)*)", inspect.cleandoc(base.__doc__ or ""), re.MULTILINE)
            found |= {name: " ".join(meaning.split()) for name, meaning in lines}
        return found

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            allowed = entry.metadata["allowed"]
            if value not in allowed:
                raise ValueError(f"{entry.name}: {_shown(value)} is not {allowed}")


def _shown(value: object) -> str:
    """A value in the spelling of a scenario file."""
    words = {type(None): "nothing", bool: str(value).lower(), dict: "a mapping", list: "a list"}
    return words.get(type(value)) or (repr(value) if isinstance(value, str | int | float) else str(value))


P = TypeVar("P", bound=Parameters)


def read_parameters(kind: type[P], values: Mapping[str, Any], beside: Sequence[str] = ()) -> P:
    """Make the parameters `kind` from a scenario's mapping. A missing value is that of the profile, else the default.

    A number that may be at most 1 may be written as a percentage, such as "30%".

    Raises ValueError for an unknown key (with the nearest name and the allowed names) or a value out of range.
    ``beside``: keys that are valid next to the parameters, so the error may suggest them.
    """
    own = {entry.name: entry.metadata["allowed"] for entry in fields(kind)}
    known = [*beside, *own]
    for key in values:
        if key not in own:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"unknown parameter {key!r}{hint} (allowed: {', '.join(known) or 'none'})")
    default = next((entry.default for entry in fields(kind) if entry.name == "profile"), None)
    given = {name: _from_percentage(value, own[name]) for name, value in values.items()}
    return kind(**{**kind.profiles.get(str(values.get("profile", default)), {}), **given})


def _from_percentage(value: Any, allowed: object) -> Any:
    """The fraction that a percentage is, where a fraction is allowed. Any other value as it is."""
    if isinstance(allowed, Between) and allowed.high == 1 and isinstance(value, str):
        with contextlib.suppress(ValueError):
            if value.endswith("%"):
                return float(value.removesuffix("%")) / 100
            return value
    return value
