"""What a search has tried, asks for next, and finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["between", "chance", "none", "all", "not monotone", "unknown"]


@dataclass(frozen=True)
class Tried:
    """One run at a position of an axis. ``survived``: None if it does not count."""

    position: float
    survived: bool | None


@dataclass(frozen=True)
class Ask:
    """The position to try next."""

    position: float


@dataclass(frozen=True)
class Limit:
    """What a search found, in positions of its axis.

    between        ``low`` survived, ``high`` did not
    chance         half of the runs survive somewhere between ``low`` and ``high``, with a probability of 95 %, most
                   probably at ``middle``; from 90 % to 10 % of the runs it takes ``spread``
    none           everything survived
    all            nothing survived
    not monotone   ``low`` failed although the more severe ``high`` survived
    unknown        no run counts

    ``tried``: the number of runs, ``unknown``: of those that do not count.
    """

    kind: Kind
    low: float | None = None
    high: float | None = None
    middle: float | None = None
    spread: float | None = None
    tried: int = 0
    unknown: int = 0
