"""Hosts in a scenario: where its nodes run, under a driver that makes nodes on several hosts.

    hosts: {cloud: pc-1, device-3: pi-2, edge: "hardware=jetson-orin-nano", device: rack=2}

A key is a tier or a node; an entry for a node replaces the entry for its tier. A value is the name of a host, or a
label of hosts and its value. edgebed's labels start with ``edgebed.``, which may be left out here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from orchestrator.record.rows import HARDWARE_LABEL as HARDWARE_LABEL
from orchestrator.scenario.language.strict import unknown
from orchestrator.scenario.language.words import describe
from orchestrator.scenario.sections.hardware import BOARDS

PREFIX = "edgebed."  # the prefix of the host labels that edgebed reads
ACCELERATOR_LABEL = f"{PREFIX}accelerator"
"""The label of a host with an accelerator for training. Its value is the accelerator as torch names it: cuda."""

_WORD = r"[^\s=]+"
_CHOICE = re.compile(rf"({_WORD})(?:=({_WORD}))?")


@dataclass(frozen=True)
class HostChoice:
    """The host of this name or, with a ``value``, every host with this value of the label ``name``."""

    name: str
    value: str | None = None

    def __str__(self) -> str:
        if self.value is None:
            return self.name
        return f"{self.name}={self.value}"

    def takes(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether it is a host of this name and these labels."""
        if self.value is None:
            return name == self.name
        own = labels.get(self.name)
        of_edgebed = labels.get(PREFIX + self.name)
        return self.value in (own, of_edgebed)


def _read_choice(value: Any) -> HostChoice:
    match = None
    if isinstance(value, str):
        match = _CHOICE.fullmatch(value)
    if match is None:
        raise ValueError(
            "write the name of a host, or a label and its value, like hardware=raspberry-pi-4, without blanks, not"
            f" {describe(value)}"
        )
    choice = HostChoice(match[1], match[2])
    if choice.value is not None and choice.name in (HARDWARE_LABEL, HARDWARE_LABEL.removeprefix(PREFIX)):
        check_board(choice.value)
    return choice


def check_board(hardware: str) -> None:
    """Raise ValueError if a board cannot be of this hardware class."""
    if hardware not in BOARDS:
        raise ValueError(unknown("hardware class of a board", hardware, BOARDS))


HostField = Annotated[
    HostChoice,
    PlainValidator(_read_choice),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "pattern": rf"^{_WORD}(={_WORD})?$", "examples": ["pc-1", "rack=2"]}),
]
