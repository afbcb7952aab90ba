"""Parameters with their allowed values: frozen dataclasses. Their fields are checked at construction."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

_MEANING = re.compile(r"^(\w+): (.+(?:\n +.+)*)", re.MULTILINE)


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
        if isinstance(value, bool):
            return False
        if not isinstance(value, int | float):
            return False
        if self.kind is int and not isinstance(value, int):
            return False
        within = self._above_low(value) and self._below_high(value)
        return within and math.isfinite(value)

    def _above_low(self, value: float) -> bool:
        if self.above:
            return value > self.low
        return value >= self.low

    def _below_high(self, value: float) -> bool:
        if self.below:
            return value < self.high
        return value <= self.high

    def __str__(self) -> str:
        bounds = f"{'above' if self.above else 'at least'} {self.low:g}"
        if math.isfinite(self.high):
            bounds += f" and {'below' if self.below else 'at most'} {self.high:g}"
        noun = "a whole number" if self.kind is int else "a number"
        nothing = ", or nothing" if self.none else ""
        return f"{noun} {bounds}{nothing}"


@dataclass(frozen=True)
class OneOf:
    """The words allowed for a parameter. `number` also allows numbers."""

    words: tuple[str, ...]
    number: Between | None = None

    def __contains__(self, value: object) -> bool:
        if value in self.words:
            return True
        return self.number is not None and value in self.number

    def __str__(self) -> str:
        words = " or ".join(self.words)
        if self.number:
            return f"{words} or {self.number}"
        return words


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
    allowed = Between(float, low, high, above, below, none)
    return field(default=default, metadata={"allowed": allowed})


def whole(default: int | None, *, low: int, none: bool = False) -> Any:
    """A whole number of at least ``low`` as a parameter. ``none`` allows None."""
    allowed = Between(int, low, none=none)
    return field(default=default, metadata={"allowed": allowed})


def word(default: str | int, *words: str, number: Between | None = None) -> Any:
    """One of these words as a parameter. ``number``: the numbers that are allowed, too."""
    allowed = OneOf(words, number)
    return field(default=default, metadata={"allowed": allowed})


def flag(default: bool) -> Any:
    """True or false as a parameter."""
    allowed = AnyOf((True, False), kind=bool, noun="true or false")
    return field(default=default, metadata={"allowed": allowed})


def text() -> Any:
    """A text as a parameter, empty by default."""
    return field(default="", metadata={"allowed": AnyOf()})


def mapping() -> Any:
    """A mapping as a parameter, empty by default."""
    allowed = AnyOf(kind=dict, noun="a mapping")
    return field(default_factory=dict, metadata={"allowed": allowed})


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Parameters of an algorithm, a model or a partition. Each field has its allowed values (`metadata["allowed"]`).

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
        meanings: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            docstring = inspect.cleandoc(base.__doc__ or "")
            for name, meaning in _MEANING.findall(docstring):
                meanings[name] = " ".join(meaning.split())
        return meanings

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            allowed = entry.metadata["allowed"]
            if value not in allowed:
                raise ValueError(f"{entry.name}: {_shown(value)} is not {allowed}")


def _shown(value: object) -> str:
    """A value in the spelling of a scenario file."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if type(value) is dict:
        return "a mapping"
    if type(value) is list:
        return "a list"
    if isinstance(value, str | int | float):
        return repr(value)
    return str(value)


P = TypeVar("P", bound=Parameters)


def read_parameters(
    kind: type[P],
    values: Mapping[str, Any],
    other_keys: Sequence[str] = (),
) -> P:
    """Make the parameters `kind` from a scenario's mapping. A missing value is that of the profile, else the default.

    A number that may be at most 1 may be written as a percentage, such as "30%".

    Raises ValueError for an unknown key (with the nearest name and the allowed names) or a value out of range.
    ``other_keys``: keys that are valid next to the parameters, so the error may suggest them.
    """
    own = {entry.name: entry.metadata["allowed"] for entry in fields(kind)}
    known = [*other_keys, *own]
    for key in values:
        if key in own:
            continue
        near = difflib.get_close_matches(str(key), known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        allowed = ", ".join(known) or "none"
        raise ValueError(f"unknown parameter {key!r}{hint} (allowed: {allowed})")
    defaults = {entry.name: entry.default for entry in fields(kind)}
    profile = values.get("profile", defaults.get("profile"))
    of_profile = kind.profiles.get(str(profile), {})
    chosen = dict(of_profile)
    for name, value in values.items():
        chosen[name] = _from_percentage(value, own[name])
    return kind(**chosen)


def _from_percentage(value: Any, allowed: object) -> Any:
    """The fraction that a percentage is, where a fraction is allowed. Any other value as it is."""
    fraction = isinstance(allowed, Between) and allowed.high == 1
    if not fraction or not isinstance(value, str):
        return value
    if not value.endswith("%"):
        return value
    with contextlib.suppress(ValueError):
        return float(value.removesuffix("%")) / 100
    return value
