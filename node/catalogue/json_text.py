"""Strict reading of the JSON files that people and their scripts write."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any


def parse_json(text: str) -> Any:
    """JSON as RFC 8259 has it. ValueError also for a repeated key, of which readers keep the last, and for NaN."""
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"it has the key {Counter(key for key, _ in pairs).most_common(1)[0][0]!r} more than once")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"it has {name}, which is no number of JSON")
