"""Comparison of a text by its parts, so that tests do not depend on the words between them."""

from __future__ import annotations

from typing import Any


class _Containing:
    def __init__(self, parts: tuple[str, ...]) -> None:
        self._parts = parts

    def __eq__(self, text: object) -> bool:
        if not isinstance(text, str):
            return NotImplemented
        start = 0
        for part in self._parts:
            start = text.find(part, start)
            if start < 0:
                return False
            start += len(part)
        return True

    def __hash__(self) -> int:
        raise TypeError("a text by its parts has no hash")

    def __repr__(self) -> str:
        return " … ".join(self._parts)


def containing(*parts: str) -> Any:
    """What equals each text that contains these parts in this order, also inside lists and records."""
    return _Containing(parts)
