"""The tables of the catalogue: entries by their names. A table is not written to."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeVar


class Named(Protocol):
    """An entry of a table."""

    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)


def by_name(*entries: N) -> Mapping[str, N]:
    """The entries by name, in their order. ValueError if two have one name."""
    table: dict[str, Any] = {}
    for entry in entries:
        if entry.name in table:
            raise ValueError(f"two entries have the name {entry.name!r}")
        table[entry.name] = entry
    return MappingProxyType(table)
