"""Parts of a plan, counters and readings of sensors as plain data for the channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError

from netem.profile import LinkProfile
from node.errors import WireError
from orchestrator.fabric.base import Counted, LinkChange
from orchestrator.fabric.namespaces.wiring import Wires
from orchestrator.host.sensors.sensor import Reading
from orchestrator.planning.plan import LinkPlan, NodePlan
from orchestrator.planning.programs import ProgramPlan

_WIRES = TypeAdapter(Wires)
_NODE = TypeAdapter(NodePlan)
_PROGRAM = TypeAdapter(ProgramPlan)
_COUNTED = TypeAdapter(Counted)
_READING = TypeAdapter(Reading)


def node_to(node: NodePlan) -> dict[str, Any]:
    return asdict(node)


def node_of(data: Mapping[str, Any]) -> NodePlan:
    return _NODE.validate_python(data)


def program_to(program: ProgramPlan) -> dict[str, Any]:
    return asdict(program)


def program_of(data: Mapping[str, Any]) -> ProgramPlan:
    return _PROGRAM.validate_python(data)


def link_to(link: LinkPlan) -> dict[str, Any]:
    """Without the schedule, which the orchestrator follows."""
    return {key: value for key, value in link.to_json().items() if key != "schedule"}


def link_of(data: Mapping[str, Any]) -> LinkPlan:
    return LinkPlan(**{**data, "profile": LinkProfile.from_mapping(data["profile"])})


def change_to(change: LinkChange) -> dict[str, Any]:
    profile = None if change.profile is None else change.profile.to_mapping()
    return {"source": change.source, "target": change.target, "profile": profile, "cut": change.cut}


def change_of(data: Mapping[str, Any]) -> LinkChange:
    profile = None if data["profile"] is None else LinkProfile.from_mapping(data["profile"])
    return LinkChange(data["source"], data["target"], profile, data["cut"])


def counted_to(counted: Counted) -> dict[str, Any]:
    return asdict(counted)


def counted_of(data: Mapping[str, Any]) -> Counted:
    return _COUNTED.validate_python(data)


def reading_to(reading: Reading) -> list[Any]:
    return list(reading)


def reading_of(data: Sequence[Any]) -> Reading:
    """WireError if it is none."""
    try:
        return _READING.validate_python(data)
    except ValidationError as error:
        raise WireError(f"not a reading: {error.errors()[0]['msg']}") from None


def wires_to(wires: Wires) -> dict[str, Any]:
    return asdict(wires)


def wires_from(data: Mapping[str, Any]) -> Wires:
    return _WIRES.validate_python(data)
