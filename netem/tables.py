"""The jitter distributions as the tables that tc reads and the kernel's netem draws from."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

_SIZE = 4096
_SCALE = 8192  # NETEM_DIST_SCALE: a table's entry of 8192 is one jitter


def distribution_tables() -> dict[str, str]:
    """Files for the directory that TC_LIB_DIR names: the quantiles of each jitter distribution, in 1/8192 jitters.

    The pareto table is iproute2's (netem/pareto.c): (4/3)(u^(-1/3) - 3/2), at most 4.
    """
    normal = NormalDist()
    quantiles = [(step + 0.5) / _SIZE for step in range(_SIZE)]
    tables = {
        "normal": [normal.inv_cdf(u) for u in quantiles],
        "uniform": [2 * u - 1 for u in quantiles],
        "pareto": [min(4 / 3 * ((1 - u) ** (-1 / 3) - 1.5), 4.0) for u in quantiles],
    }
    return {f"{name}.dist": _table(values) for name, values in tables.items()}


def _table(values: Sequence[float]) -> str:
    """The format of iproute2's .dist files: signed 16-bit numbers, eight to a line."""
    numbers = [f"{min(32767, max(-32768, round(value * _SCALE)))}" for value in values]
    return "".join(" ".join(numbers[start : start + 8]) + "\n" for start in range(0, len(numbers), 8))
