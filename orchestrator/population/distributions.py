"""Distributions that each client of a population draws one number from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


class Distribution(Protocol):
    """``draw`` returns the numbers of ``count`` clients; the first numbers do not depend on ``count``."""

    def draw(self, random: np.random.Generator, count: int) -> Numbers: ...

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Lognormal:
    """median * exp(sigma * z) with a standard normal z. Numbers outside low to high take these values."""

    median: float
    sigma: float
    low: float | None = None
    high: float | None = None

    def draw(self, random: np.random.Generator, count: int) -> Numbers:
        numbers = self.median * np.exp(self.sigma * random.standard_normal(count))
        return np.clip(numbers, self.low, self.high) if (self.low, self.high) != (None, None) else numbers

    def to_json(self) -> dict[str, Any]:
        return {"lognormal": {key: value for key, value in asdict(self).items() if value is not None}}


@dataclass(frozen=True)
class Uniform:
    """The same chance for all numbers from low to high."""

    low: float
    high: float

    def draw(self, random: np.random.Generator, count: int) -> Numbers:
        return random.uniform(self.low, self.high, count)

    def to_json(self) -> dict[str, Any]:
        return {"uniform": asdict(self)}


@dataclass(frozen=True)
class Fixed:
    """The same number for all."""

    value: float

    def draw(self, random: np.random.Generator, count: int) -> Numbers:
        return np.full(count, self.value)

    def to_json(self) -> dict[str, Any]:
        return {"fixed": self.value}
