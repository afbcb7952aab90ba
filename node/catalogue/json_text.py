"""JSON as RFC 8259 has it, which has no NaN and no infinity: strict reading of the files that people and their scripts
write, and writing of values that others may have made."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any


def parse_json(text: str) -> Any:
    """JSON as RFC 8259 has it. ValueError also for NaN, and for a repeated key: readers keep only the last."""
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def strict_json(value: Any, indent: int | None = None) -> str:
    """JSON of a value, with null in place of NaN and the infinities."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        finite = _finite(value)
        return json.dumps(finite, indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        finite = {}
        for key, element in value.items():
            if isinstance(key, float) and not math.isfinite(key):
                continue
            finite[key] = _finite(element)
        return finite
    if isinstance(value, list | tuple):
        return [_finite(element) for element in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    counts = Counter(key for key, _ in pairs)
    repeated, _ = counts.most_common(1)[0]
    raise ValueError(f"it has the key {repeated!r} more than once")


def _no_constant(name: str) -> Any:
    raise ValueError(f"it has {name}, which is no number of JSON")
