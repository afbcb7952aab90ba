"""The jitter distributions as tables: tc reads them, the kernel's netem draws from them."""

from __future__ import annotations

from collections.abc import Sequence

from netem.jitter import quantile
from netem.profile import DISTRIBUTIONS

_SIZE = 4096
_SCALE = 8192  # NETEM_DIST_SCALE: a table's entry of 8192 is one jitter


def distribution_tables() -> dict[str, str]:
    """Files for the directory that TC_LIB_DIR names: the quantiles of each jitter distribution, in 1/8192 jitters."""
    shares = [(step + 0.5) / _SIZE for step in range(_SIZE)]
    files = {}
    for name in DISTRIBUTIONS:
        quantiles = [quantile(name, share) for share in shares]
        files[f"{name}.dist"] = _table(quantiles)
    return files


def _table(values: Sequence[float]) -> str:
    """The format of iproute2's .dist files: signed 16-bit numbers, eight to a line."""
    numbers = []
    for value in values:
        number = round(value * _SCALE)
        clipped = min(32767, max(-32768, number))
        numbers.append(str(clipped))
    lines = []
    for start in range(0, len(numbers), 8):
        eight = numbers[start : start + 8]
        lines.append(" ".join(eight) + "\n")
    return "".join(lines)
