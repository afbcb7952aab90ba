"""The settings in the files of single clients, added to a scenario as if it had them: `hardware`, `links` and `faults`.

    clients: {file: clients.csv, availability: {trace: stays.csv}}

A client that is not available is disconnected: no packet crosses its links, and its process continues. So it is away
and back on time, as often as the trace says, under every driver. A process that ends and starts again would take
seconds, and a node can leave and join only once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from netem.errors import UnitError
from netem.units import format_duration, parse_duration
from orchestrator.errors import Problem, ScenarioError
from orchestrator.population.table import AvailabilityTable
from orchestrator.scenario.fault_validation import MAX_FAULTS
from orchestrator.scenario.language.document import Document
from orchestrator.scenario.language.files import DIRECTORY, FILES
from orchestrator.scenario.language.syntax import KeyPath
from orchestrator.scenario.population.client_settings import ClientRow, ClientSettings
from orchestrator.scenario.population.clients import ClientsSpec
from orchestrator.scenario.sections.topology import Member, Topology, unknown_node

Stay = tuple[float, float]
_TYPES: dict[str, Any] = {"hardware": dict, "links": dict, "faults": list}  # of sections


def with_client_files(
    source: Document,
    directory: Path,
    files: Mapping[str, str],
) -> Document:
    """The scenario with the settings of its clients' files; each has the place of its row. What is wrong elsewhere is
    left for the validation of the scenario. Raises ScenarioError."""
    written = source.data.get("clients")
    if not isinstance(written, dict):
        return source
    if not written.keys() & {"file", "availability"}:
        return source
    try:
        spec = ClientsSpec.model_validate(written, context={DIRECTORY: directory, FILES: files})
        topology = Topology.model_validate(source.data.get("topology") or {})
        after = _after(source.data)
    except (ValidationError, UnitError):
        return source
    sections = _sections(source.data)
    if topology.population is not None or sections is None:
        return source
    data = {**source.data, **sections}
    places = dict(source.places)
    key = "file"
    try:
        if spec.settings is not None:
            _add_settings(spec.settings, topology, data, places)
        key = "availability"
        if spec.availability is not None and spec.availability.table is not None:
            _add_absences(spec.availability.table, topology, after, data["faults"], places)
    except ValueError as error:
        place = source.place(("clients", key))
        problem = Problem(place, f"clients.{key}", str(error))
        raise ScenarioError([problem]) from None
    return replace(source, data=data, places=places)


def _sections(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Copies of the sections that the files change; None if one has another type."""
    copies = {}
    for key, kind in _TYPES.items():
        section = data.get(key)
        if section is None:
            copies[key] = kind()
        elif isinstance(section, kind):
            copies[key] = kind(section)
        else:
            return None
    return copies


def clients_of(topology: Topology) -> list[str]:
    """The nodes that rows without names are for: the devices or, without devices, the edges."""
    return topology.group("devices") or topology.group("edges")


def by_node(table: AvailabilityTable, topology: Topology) -> dict[str, int]:
    """The device of the trace that each node behaves as: the one of its name if the trace names nodes, or else the
    devices in their order. ValueError if names are unknown, or devices too few."""
    devices = {}
    if table.names_nodes or set(table.names) & topology.names:
        for number, name in enumerate(table.names):
            place = f"{table.name}:{table.lines[number]}"
            devices[_known(name, topology, place)] = number
        return devices
    clients = clients_of(topology)
    if table.devices < len(clients):
        raise ValueError(f"{table.name}: has {table.devices} devices for {len(clients)} clients")
    return {node: number for number, node in enumerate(clients)}


def _known(name: str, topology: Topology, place: str) -> str:
    if name not in topology.names:
        raise ValueError(f"{place}: {unknown_node(name, topology.names)}")
    return name


def _after(data: Mapping[str, Any]) -> float | None:
    stop = data.get("stop")
    if isinstance(stop, dict) and stop.get("after") is not None:
        return parse_duration(stop["after"])
    return None


def _add_settings(
    settings: ClientSettings,
    topology: Topology,
    data: dict[str, Any],
    places: dict[KeyPath, str],
) -> None:
    clients = clients_of(topology)
    rows = settings.rows
    if not settings.named and len(rows) < len(clients):
        raise ValueError(f"{settings.name}: has {len(rows)} rows for {len(clients)} clients")
    members = {member.name: member for member in topology.members()}
    linked = _links_by_ends(data["links"])
    nodes = clients
    if settings.named:
        nodes = [row.node for row in rows]
    for row, node in zip(rows, nodes, strict=False):
        member = members[_known(node, topology, row.place)]
        if row.hardware:
            _add_hardware(row, member, data["hardware"])
            places["hardware", node] = row.place
        if not row.links:
            continue
        if member.parent is None:
            raise ValueError(f"{row.place}: {node} has no node above it: leave the columns of its link empty")
        ends = frozenset((node, member.parent))
        if ends in linked:
            raise ValueError(f"{row.place}: links has '{linked[ends]}' already: leave out one of them")
        keys = {
            "": f"{node} <-> {member.parent}",
            "up": f"{node} -> {member.parent}",
            "down": f"{member.parent} -> {node}",
        }
        for side, key in keys.items():  # a later entry replaces settings of an earlier one
            if side in row.links:
                data["links"][key] = dict(row.links[side])
                places["links", key] = row.place


def _add_hardware(row: ClientRow, member: Member, section: dict[str, Any]) -> None:
    """Add the hardware of a row to the section `hardware`."""
    node = member.name
    if node in section:
        raise ValueError(f"{row.place}: hardware has {node} already: leave out one of them")
    of_tier = section.get(member.tier)
    section[node] = over(of_tier, row.hardware)


def _links_by_ends(links: Mapping[Any, Any]) -> dict[frozenset[str], str]:
    """The keys of `links`, by the two names in each."""
    keys = {}
    for key in links:
        if isinstance(key, str):
            ends = frozenset(key.split()) - {"->", "<->"}
            keys[ends] = key
    return keys


def over(of_tier: Any, own: Mapping[str, Any]) -> dict[str, Any]:
    """A client's hardware over that of its tier. A class replaces its class, speed, cores and memory."""
    base: dict[str, Any] = {}
    if isinstance(of_tier, str):
        base = {"class": of_tier}
    elif isinstance(of_tier, dict):
        base = of_tier
    hardware = {}
    for key, value in base.items():
        if "class" not in own or key in ("image", "accelerator"):
            hardware[key] = value
    return hardware | dict(own)


def _add_absences(
    table: AvailabilityTable,
    topology: Topology,
    after: float | None,
    faults: list[Any],
    places: dict[KeyPath, str],
) -> None:
    """A fault for each time that a client is away."""
    if after is None:
        raise ValueError("needs stop.after: stays repeat, and when clients are away is planned before the run")
    nodes = by_node(table, topology)
    stays = {}
    expected = 0.0
    for node, device in nodes.items():
        stays[node] = table.stays(device)
        expected += len(stays[node]) * after / table.period[device]
    if expected > MAX_FAULTS:
        raise ValueError(f"{table.name}: clients would go away more than {MAX_FAULTS:,} times: lower stop.after")
    for node, device in nodes.items():
        period = float(table.period[device])
        place = f"{table.name}:{table.lines[device]}"
        for start, end in absences(stays[node], period, after):
            fault = {
                "at": format_duration(start),
                "node": node,
                "action": "disconnect",
            }
            if end is not None:
                duration = round(end - start, 9)
                fault["for"] = format_duration(duration)
            places["faults", len(faults)] = place
            faults.append(fault)


def absences(
    stays: Sequence[Stay],
    period: float,
    after: float,
) -> Iterator[tuple[float, float | None]]:
    """When a device with these stays is away in the first ``after`` s: (from, until or None)."""
    away_since = 0.0
    cycles = math.ceil(after / period) if stays else 0
    for cycle in range(cycles):
        cycle_start = cycle * period
        for first, last in stays:
            start = round(cycle_start + first, 9)
            end = round(cycle_start + last, 9)
            if start >= after:
                break
            if start > away_since:
                yield away_since, start
            away_since = max(away_since, end)
    if away_since < after:
        yield away_since, None
