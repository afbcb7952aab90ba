"""The values of an axis, from the mildest to the most severe, and their positions from 0 to 1 between them.

Searches work on positions, so one search serves all axes: latencies grow in factors, rates fall in factors, losses grow
in equal steps, and clients are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from netem import units

Unit = Literal["duration", "rate", "fraction", "clients"]
LARGEST_FACTOR = 10.0  # between two steps of the ladder on an axis in factors
MOST_STEPS = 4  # of the ladder
DIGITS = 3  # of a value on an axis in factors
POINT = 0.001  # of a fraction: a tenth of a percentage point


@dataclass(frozen=True)
class Scale:
    """An axis between two values in plain numbers: seconds, bits per second, fractions 0..1, or clients.

    ``mild`` is the value at position 0, ``severe`` that at position 1; of a rate ``mild`` is the larger one.
    """

    mild: float
    severe: float
    unit: Unit

    @property
    def in_factors(self) -> bool:
        """Whether equal distances are equal factors."""
        return self.unit in ("duration", "rate")

    def value(self, position: float) -> float:
        """The value at a position, rounded to what one would write."""
        if position <= 0:
            return self.mild
        if position >= 1:
            return self.severe
        if self.in_factors:
            factor = self.severe / self.mild
            exact = self.mild * factor**position
            return _rounded(exact)
        exact = self.mild + position * (self.severe - self.mild)
        if self.unit == "clients":
            return float(round(exact))
        return round(round(exact / POINT) * POINT, DIGITS)

    def position(self, value: float) -> float:
        """The position of a value; below 0 or above 1 outside the axis."""
        if self.in_factors:
            return math.log(value / self.mild) / math.log(self.severe / self.mild)
        return (value - self.mild) / (self.severe - self.mild)

    def written(self, value: float) -> str:
        """A value as it is written in a scenario."""
        return _WRITTEN[self.unit](value)

    def width(self, factor: float) -> float:
        """The distance of two positions with values that differ by this factor; on an axis of fractions or clients, by
        a share of the axis as large as the factor is above 1."""
        if self.in_factors:
            return math.log(factor) / abs(math.log(self.severe / self.mild))
        return factor - 1

    def ladder(self) -> list[float]:
        """The positions that are tried first, from 0 to 1."""
        steps = MOST_STEPS
        if self.in_factors:
            factor = max(self.mild, self.severe) / min(self.mild, self.severe)
            needed = math.log(factor) / math.log(LARGEST_FACTOR)
            steps = min(MOST_STEPS, max(1, round(needed)))
        positions = [self.position(self.value(step / steps)) for step in range(steps + 1)]
        return sorted(set(positions))


def _rounded(value: float) -> float:
    """A value with `DIGITS` significant digits."""
    exponent = math.floor(math.log10(value))
    return round(value, DIGITS - 1 - exponent)


def _clients(value: float) -> str:
    return f"{value:.0f}"


_WRITTEN: dict[Unit, Callable[[float], str]] = {
    "duration": units.format_duration,
    "rate": units.format_rate,
    "fraction": units.format_fraction,
    "clients": _clients,
}
