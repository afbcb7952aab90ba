"""Round numbers along an axis, and values in words: what script/scale.js does on a page."""

from __future__ import annotations

import math
from typing import Any

from orchestrator import text

STEPS = (1, 2, 5, 10)


def ticks(low: float, high: float, count: float) -> list[float]:
    """About ``count`` round numbers from ``low`` to ``high``."""
    raw = (high - low) / max(1.0, count)
    if not raw > 1e-12 * abs(low):
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = power * next(factor for factor in STEPS if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def in_words(axis: dict[str, Any], value: float) -> str:
    """A value on an axis of `orchestrator.report.marks`."""
    match axis.get("format"):
        case "percent":
            return f"{round(100 * value, 1):g}%"
        case "bytes":
            return text.size(value)
        case "rate":
            return text.size(value).replace("B", "bit/s")
    return f"{value:,.10g}".replace("-", "−")
