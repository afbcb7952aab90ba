"""How tests write many scenarios with their messages."""

from __future__ import annotations


def pairs(*rows: str) -> list[tuple[str, str]]:
    """Scenarios, each with its message in the next row."""
    return list(zip(rows[::2], rows[1::2], strict=True))
