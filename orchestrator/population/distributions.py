"""Distributions that each client of a population draws one number from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


class Distribution(Protocol):
    """``draw`` returns the numbers of ``count`` clients; the first numbers do not depend on ``count``."""

    def draw(self, random: np.random.Generator, count: int) -> Numbers: ...

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Fixed:
    """The same number for all."""

    value: float

    def draw(self, random: np.random.Generator, count: int) -> Numbers:
        return np.full(count, self.value)

    def to_json(self) -> dict[str, Any]:
        return {"fixed": self.value}
