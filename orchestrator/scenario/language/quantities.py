"""Typed quantities for the scenario's models: read and written with units, described by JSON Schema for editors.

Internally they are plain numbers: seconds, bytes and fractions 0..1. `netem.units` defines how they are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainSerializer, PlainValidator, WithJsonSchema

from netem import units
from netem.errors import UnitError
from netem.profile import FASTEST

_NUMBER = r"[0-9]*\.?[0-9]+"

DURATION_SCHEMA: dict[str, Any] = {
    "type": ["string", "number"],
    "pattern": rf"^\s*{_NUMBER}\s*(ns|us|ms|s|min|h)\s*$",
    "maximum": 0,  # the only number that needs no unit
    "minimum": 0,
    "examples": ["20ms", "1.5s", "10min"],
}
FRACTION_SCHEMA: dict[str, Any] = {
    "type": ["string", "number"],
    "pattern": r"^\s*(100(\.0*)?|[0-9]{1,2}(\.[0-9]*)?|\.[0-9]+)\s*%\s*$",
    "maximum": 0,  # as for durations
    "minimum": 0,
    "examples": ["0.5%", "30%"],
}
RATE_SCHEMA: dict[str, Any] = {
    "type": ["string", "null"],
    "pattern": rf"^\s*{_NUMBER}\s*(bit|kbit|mbit|gbit)\s*$",
    "examples": ["50mbit", "1gbit"],
}
SIZE_SCHEMA: dict[str, Any] = {
    "type": "string",
    "pattern": rf"^\s*{_NUMBER}\s*(b|kb|mb|gb|kib|mib|gib)\s*$",
    "examples": ["64kb", "4gib"],
}


def mapping_schema(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    """The JSON Schema of a mapping with these keys and no others."""
    schema = {"type": "object", "additionalProperties": False, "properties": properties}
    if required:
        schema["required"] = list(required)
    return schema


def _read_auto_duration(value: Any) -> Any:
    if value == "auto":
        return value
    return units.parse_duration(value)


def _write_auto_duration(value: Any) -> Any:
    if value == "auto":
        return value
    return units.format_duration(value)


def _read_rate(value: Any) -> float:
    rate = units.parse_rate(value)
    if not 1 <= rate <= FASTEST:
        raise ValueError(f"must be 1bit to {units.format_rate(FASTEST)}, not {value}")
    return rate


Duration = Annotated[
    float,
    BeforeValidator(units.parse_duration),
    PlainSerializer(units.format_duration),
    WithJsonSchema(DURATION_SCHEMA),
]
Fraction = Annotated[
    float,
    BeforeValidator(units.parse_fraction),
    PlainSerializer(units.format_fraction),
    WithJsonSchema(FRACTION_SCHEMA),
]
Rate = Annotated[
    float,
    BeforeValidator(_read_rate),
    PlainSerializer(units.format_rate),
    WithJsonSchema(RATE_SCHEMA | {"type": "string"}),
]
Size = Annotated[
    int,
    BeforeValidator(units.parse_size),
    PlainSerializer(units.format_size),
    WithJsonSchema(SIZE_SCHEMA),
]
AutoDuration = Annotated[
    Literal["auto"] | float,
    BeforeValidator(_read_auto_duration),
    PlainSerializer(_write_auto_duration),
    WithJsonSchema({"anyOf": [{"const": "auto"}, DURATION_SCHEMA]}),
]


@dataclass(frozen=True)
class Quorum:
    """The number of peers that must answer: a ``share`` (0..1) or a ``count`` of those asked; the other is None."""

    share: float | None = None
    count: int | None = None

    def __str__(self) -> str:
        if self.share is not None:
            return units.format_fraction(self.share)
        return f"{self.count}"


def _read_quorum(value: Any) -> Quorum:
    if isinstance(value, Quorum):
        return value
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number and value > 0:
        return Quorum(count=value)
    try:
        share = units.parse_fraction(value)
    except UnitError as error:
        raise ValueError(f"{error}; or a whole number of peers, like 2") from None
    if share == 0:
        raise ValueError(f"must be above 0%, or a whole number of peers, at least 1, not {value}")
    return Quorum(share=share)


def _write_quorum(quorum: Quorum) -> Any:
    if quorum.count is None:
        return str(quorum)
    return quorum.count


_COUNT_SCHEMA = {"type": "integer", "minimum": 1}
QuorumField = Annotated[
    Quorum,
    PlainValidator(_read_quorum),
    PlainSerializer(_write_quorum),
    WithJsonSchema({"anyOf": [FRACTION_SCHEMA | {"type": "string"}, _COUNT_SCHEMA]}),
]
