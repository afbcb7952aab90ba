"""From a scenario to its population: the distributions that its clients draw from, and who is selected how."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from netem.errors import NetemError
from node.catalogue.partitions import Dirichlet
from node.parameters import read_parameters
from orchestrator.errors import PlanError, Problem
from orchestrator.planning.learning.shards import PreparedLabels
from orchestrator.planning.plan import LinkPlan, NodePlan
from orchestrator.population.availability import HOUR, Always, Availability, DayAndNight, FromTrace, effect
from orchestrator.population.population import Distribution, Fixed, HardwareShare, LinkShare, Population
from orchestrator.population.selection import SELECTIONS
from orchestrator.scenario.language.strict import reworded
from orchestrator.scenario.language.words import dotted
from orchestrator.scenario.media.clients import crossings_of
from orchestrator.scenario.population.client_files import by_node, clients_of, over
from orchestrator.scenario.population.client_settings import ClientSettings
from orchestrator.scenario.population.clients import AvailabilitySpec, ClientsSpec
from orchestrator.scenario.population_validation import LINK_CLASS
from orchestrator.scenario.schema import HardwareSpec, Scenario
from orchestrator.scenario.sections.hardware import CUSTOM, HARDWARE, HardwareClass
from orchestrator.scenario.sections.links import LinkSpec
from orchestrator.scenario.sections.profiles import LinkKeys
from orchestrator.scenario.sections.topology import POPULATION


def plan_population(scenario: Scenario, data: PreparedLabels | None, links: Sequence[LinkPlan]) -> Population | None:
    """The population of a scenario; None if it has none. PlanError if a client asks for more samples than there are."""
    spec = scenario.population
    topology = scenario.topology
    if spec is None or topology.population is None or topology.selected is None:
        return None
    kind = SELECTIONS[spec.selection.name]
    partition = scenario.data.partition
    hardware = _hardware(scenario, spec)
    between = _links(spec, links)
    if spec.settings is not None:
        hardware, between = _of_rows(spec.settings, scenario, between[0])
    population = Population(
        seed=scenario.seed,
        size=topology.population,
        selected=topology.selected,
        asked=min(topology.population, math.ceil(topology.selected * (1 + spec.over) - 1e-9)),
        selection=read_parameters(kind.params, spec.selection.params),
        availability=_availability(spec.availability, topology.population, scenario.seed),
        hardware=hardware,
        speed=spec.speed,
        links=between,
        samples=_samples(scenario, spec),
        alpha=None if partition.name == "iid" else read_parameters(Dirichlet, partition.params).alpha,
        asynchronous=scenario.scheme.asynchronous,
        paired=spec.settings is not None,
        crossings=crossings_of(scenario.shared, scenario.routes),
    )
    if data is not None and (most := int(population.sample_counts.max())) > len(data.train):
        if spec.samples is None:
            where = ("data", "samples_per_client")
        else:
            where = ("clients", "samples")
        raise PlanError(where, f"a client would draw {most} samples of {len(data.train)}: lower it, or set `high`")
    return population


def plan_clients(scenario: Scenario) -> dict[str, Any]:
    """The files that say what single nodes are and when they are there, for plan.json; empty without such files."""
    spec = scenario.clients
    topology = scenario.topology
    if spec is None:
        return {}
    files: dict[str, Any] = {}
    settings = spec.settings
    if settings is not None:
        every = settings.named or topology.population is not None
        if every:
            used = len(settings.rows)
        else:
            used = len(clients_of(topology))
        files["file"] = {"csv": settings.name, "sha256": settings.sha256, "rows": len(settings.rows), "used": used}
    if topology.population is None and spec.availability is not None and (table := spec.availability.table) is not None:
        nodes = by_node(table, topology)
        facts = {"trace": table.name, "sha256": table.sha256, "rows": table.devices, "used": len(nodes)}
        files["availability"] = facts | effect(table, np.array(list(nodes.values())))
    return files


def typical(
    nodes: Sequence[NodePlan], links: Sequence[LinkPlan], population: Population
) -> tuple[tuple[NodePlan, ...], tuple[LinkPlan, ...]]:
    """The nodes and links of a plan, where the node that stands for all clients has what most of them have."""
    link = max(population.links, key=lambda each: each.share)
    if population.speed is not None:
        hardware = HardwareClass(CUSTOM, speed=float(np.median(population.speeds)))
    else:
        name = max(population.hardware, key=lambda each: each.share).name
        hardware = HARDWARE.get(name, next(node.hardware for node in nodes if node.name == POPULATION))
    return (
        tuple(replace(node, hardware=hardware) if node.name == POPULATION else node for node in nodes),
        tuple(replace(each, profile=link.up if each.source == POPULATION else link.down) for each in links),
    )


def _samples(scenario: Scenario, spec: ClientsSpec) -> Distribution:
    if spec.samples is not None:
        return spec.samples
    assert scenario.data.samples_per_client is not None, "load() has checked it"
    return Fixed(float(scenario.data.samples_per_client))


def _hardware(scenario: Scenario, spec: ClientsSpec) -> list[HardwareShare]:
    if spec.hardware:
        return [HardwareShare(name, share, HARDWARE[name].expected_speed) for name, share in spec.hardware.items()]
    chosen = scenario.hardware_of(POPULATION, "device").resolve()
    return [HardwareShare(chosen.name, 1.0, chosen.expected_speed)]


def _links(spec: ClientsSpec, links: Sequence[LinkPlan]) -> list[LinkShare]:
    found = []
    for name, share in spec.links.items():
        up, down = LinkSpec(profile=name).directions(level=False)
        found.append(LinkShare(name, share, up, down))
    if found:
        return found
    up = next(each.profile for each in links if each.source == POPULATION)
    down = next(each.profile for each in links if each.target == POPULATION)
    return [LinkShare(LINK_CLASS, 1.0, up, down)]


def _of_rows(
    settings: ClientSettings, scenario: Scenario, usual: LinkShare
) -> tuple[list[HardwareShare], list[LinkShare]]:
    """The hardware and the links in a file, of which each client draws a row. PlanError names a bad row."""
    share = 1 / len(settings.rows)
    tier = scenario.hardware_of(POPULATION, "device").model_dump(exclude_unset=True, by_alias=True)
    hardware = []
    links = []
    for row in settings.rows:
        try:
            chosen = HardwareSpec.model_validate(over(tier, row.hardware))
            sides = {side: LinkKeys.model_validate(keys) for side, keys in row.links.items()}
            both = sides.get("", LinkKeys())
            up = usual.up.merged(both.changes(upward=True)).merged(sides.get("up", LinkKeys()).changes())
            down = usual.down.merged(both.changes()).merged(sides.get("down", LinkKeys()).changes())
        except ValidationError as error:
            path, message = reworded(error, HardwareSpec)[0]
            raise PlanError(("clients", "file"), str(Problem(row.place, dotted(path), message))) from None
        except NetemError as error:
            raise PlanError(("clients", "file"), f"{row.place}: {error}") from None
        resolved = chosen.resolve()
        hardware.append(HardwareShare(resolved.name, share, resolved.expected_speed))
        links.append(LinkShare(both.profile or usual.name, share, up, down))
    return hardware, links


def _availability(spec: AvailabilitySpec | None, clients: int, seed: int) -> Availability:
    if spec is None:
        return Always(clients)
    if spec.table is not None:
        return FromTrace(clients, seed, spec.table)
    assert spec.day_and_night is not None
    settings = dict(spec.day_and_night)
    zones = {float(hours.removesuffix("h")) * HOUR: share for hours, share in settings.pop("time_zones").items()}
    return DayAndNight(clients=clients, seed=seed, time_zones=zones, **settings)
