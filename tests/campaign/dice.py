"""Random choices for one part of a case."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TypeVar

from node.assignment import derive_seed

T = TypeVar("T")


class Dice:
    """Draws that depend only on the case's seed and the part's name: a new part does not change the others' draws."""

    def __init__(self, seed: int, part: str) -> None:
        self._random = random.Random(derive_seed(seed, "campaign", part))

    def coin(self, chance: float = 0.5) -> bool:
        return self._random.random() < chance

    def pick(self, options: Sequence[T]) -> T:
        return self._random.choice(options)

    def some(self, options: Sequence[T], count: int) -> list[T]:
        """Draw ``count`` different options; returns them in their order."""
        return [options[i] for i in sorted(self._random.sample(range(len(options)), count))]

    def whole(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def number(self, low: float, high: float) -> float:
        """A log-uniform number between the two, rounded to three digits."""
        return float(f"{math.exp(self._random.uniform(math.log(low), math.log(high))):.3g}")

    def seconds(self, low: float, high: float) -> str:
        return f"{self.number(1000 * low, 1000 * high):.15g}ms"

    def percent(self, low: float, high: float) -> str:
        return f"{self.number(low, high):.15g}%"
