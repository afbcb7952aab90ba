"""The figures of plug-ins, which the record keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.record.events.base import RecordedEvent


@dataclass(frozen=True)
class Curves(RecordedEvent):
    """A plug-in's figure of the report: lines over ``x``. ``x`` and ``y`` are the titles of the axes, ``lines`` has the
    points of each line by its name, such as {"worst device": [(1, 0.2), (2, 0.3)]}."""

    NAME = "curves"

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[Sequence[float]]]
