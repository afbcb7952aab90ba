"""What all recorded events have in common: a name, and fields that the record has as a JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self


@dataclass(frozen=True)
class RecordedEvent:
    """A kind of event. Its fields are the keys of its data in the record, in the same order.

    ``NAME``: its name in the record. ``KEYS``: the keys of fields with another name in Python.
    A field with a default value may be missing in the record.
    """

    NAME: ClassVar[str]
    KEYS: ClassVar[Mapping[str, str]] = {}

    def to_json(self) -> dict[str, Any]:
        """Its data in the record."""
        data = {}
        for field in fields(self):
            key = self.KEYS.get(field.name, field.name)
            data[key] = getattr(self, field.name)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The event with this data. Keys that it does not have are left out: a node may add some."""
        known = {}
        for field in fields(cls):
            key = cls.KEYS.get(field.name, field.name)
            if key in data:
                known[field.name] = data[key]
        return cls(**known)

    def to_message(self) -> dict[str, Any]:
        """The message of a node that reports it (`node.messaging.control`)."""
        return {"type": "event", "name": self.NAME, **self.to_json()}
