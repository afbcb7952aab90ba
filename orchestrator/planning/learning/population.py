"""From a scenario to its population: the distributions that its clients draw from, and how clients are selected."""

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
from orchestrator.scenario.catalogue import CATALOGUE, Catalogue
from orchestrator.scenario.language.strict import reworded
from orchestrator.scenario.language.words import dotted
from orchestrator.scenario.media.clients import crossings_of
from orchestrator.scenario.population.client_files import by_node, clients_of, over
from orchestrator.scenario.population.client_settings import ClientRow, ClientSettings
from orchestrator.scenario.population.clients import AvailabilitySpec, ClientsSpec
from orchestrator.scenario.population_validation import LINK_CLASS
from orchestrator.scenario.schema import HardwareSpec, Scenario
from orchestrator.scenario.sections.hardware import CUSTOM, HARDWARE, HardwareClass
from orchestrator.scenario.sections.links import link_of
from orchestrator.scenario.sections.profiles import LinkKeys
from orchestrator.scenario.sections.topology import POPULATION


def plan_population(
    scenario: Scenario,
    data: PreparedLabels | None,
    links: Sequence[LinkPlan],
) -> Population | None:
    """The population of a scenario; None if it has none. PlanError if a client asks for more samples than there are."""
    spec = scenario.population
    if spec is None:
        return None
    size = scenario.topology.population
    selected = scenario.topology.selected
    assert size is not None
    assert selected is not None
    kind = SELECTIONS[spec.selection.name]
    partition = scenario.data.partition
    hardware = _hardware(scenario, spec)
    between = _links(spec, links, scenario.catalogue)
    if spec.settings is not None:
        usual = between[0]
        hardware, between = _of_rows(spec.settings, scenario, usual)
    with_reserve = selected * (1 + spec.over)
    requested = math.ceil(with_reserve - 1e-9)  # 100 * 1.1 is 110.00000000000001
    alpha = None
    if partition.name != "iid":
        alpha = read_parameters(Dirichlet, partition.params).alpha
    population = Population(
        seed=scenario.seed,
        size=size,
        selected=selected,
        asked=min(size, requested),
        selection=read_parameters(kind.params, spec.selection.params),
        availability=_availability(spec.availability, size, scenario.seed),
        hardware=hardware,
        speed=spec.speed,
        links=between,
        samples=_samples(scenario, spec),
        alpha=alpha,
        asynchronous=scenario.scheme.asynchronous,
        paired=spec.settings is not None,
        crossings=crossings_of(scenario.shared, scenario.routes),
    )
    if data is not None:
        _refuse_too_many_samples(population, spec, data)
    return population


def _refuse_too_many_samples(
    population: Population,
    spec: ClientsSpec,
    data: PreparedLabels,
) -> None:
    available = len(data.train)
    most = int(population.sample_counts.max())
    if most <= available:
        return
    if spec.samples is None:
        where = ("data", "samples_per_client")
    else:
        where = ("clients", "samples")
    raise PlanError(where, f"a client would draw {most} samples of {available}: lower it, or set `high`")


def plan_clients(scenario: Scenario) -> dict[str, Any]:
    """The files with the settings and the availability of single nodes, for plan.json; empty without such files."""
    spec = scenario.clients
    topology = scenario.topology
    if spec is None:
        return {}
    files: dict[str, Any] = {}
    settings = spec.settings
    if settings is not None:
        used = len(settings.rows)
        if not settings.named and topology.population is None:
            used = len(clients_of(topology))
        files["file"] = {
            "csv": settings.name,
            "sha256": settings.sha256,
            "rows": len(settings.rows),
            "used": used,
        }
    if topology.population is None and spec.availability is not None:
        table = spec.availability.table
        if table is not None:
            devices = by_node(table, topology)
            facts = {
                "trace": table.name,
                "sha256": table.sha256,
                "rows": table.devices,
                "used": len(devices),
            }
            positions = np.array(list(devices.values()))
            files["availability"] = facts | effect(table, positions)
    return files


def typical(
    nodes: Sequence[NodePlan],
    links: Sequence[LinkPlan],
    population: Population,
) -> tuple[tuple[NodePlan, ...], tuple[LinkPlan, ...]]:
    """The nodes and links of a plan, where the node that stands for all clients has what most of them have."""
    hardware = _typical_hardware(nodes, population)
    usual = max(population.links, key=lambda link: link.share)
    typical_nodes = []
    for node in nodes:
        if node.name == POPULATION:
            typical_nodes.append(replace(node, hardware=hardware))
        else:
            typical_nodes.append(node)
    typical_links = []
    for link in links:
        if link.source == POPULATION:
            profile = usual.up
        else:
            profile = usual.down
        typical_links.append(replace(link, profile=profile))
    return tuple(typical_nodes), tuple(typical_links)


def _typical_hardware(nodes: Sequence[NodePlan], population: Population) -> HardwareClass:
    if population.speed is not None:
        median = float(np.median(population.speeds))
        return HardwareClass(CUSTOM, speed=median)
    most_frequent = max(population.hardware, key=lambda hardware: hardware.share)
    stand_in = next(node for node in nodes if node.name == POPULATION)
    return HARDWARE.get(most_frequent.name, stand_in.hardware)


def _samples(scenario: Scenario, spec: ClientsSpec) -> Distribution:
    if spec.samples is not None:
        return spec.samples
    assert scenario.data.samples_per_client is not None, "load() has checked it"
    return Fixed(float(scenario.data.samples_per_client))


def _hardware(scenario: Scenario, spec: ClientsSpec) -> list[HardwareShare]:
    if not spec.hardware:
        tier = scenario.hardware_of(POPULATION, "device").resolve()
        return [HardwareShare(tier.name, 1.0, tier.expected_speed)]
    shares = []
    for name, share in spec.hardware.items():
        speed = HARDWARE[name].expected_speed
        shares.append(HardwareShare(name, share, speed))
    return shares


def _links(
    spec: ClientsSpec,
    links: Sequence[LinkPlan],
    catalogue: Catalogue,
) -> list[LinkShare]:
    shares = []
    for name, share in spec.links.items():
        named = link_of(name, catalogue)
        up, down = named.directions(level=False)
        shares.append(LinkShare(name, share, up, down))
    if shares:
        return shares
    up = next(link.profile for link in links if link.source == POPULATION)
    down = next(link.profile for link in links if link.target == POPULATION)
    return [LinkShare(LINK_CLASS, 1.0, up, down)]


def _of_rows(
    settings: ClientSettings,
    scenario: Scenario,
    usual: LinkShare,
) -> tuple[list[HardwareShare], list[LinkShare]]:
    """The hardware and the links in a file, of which each client draws a row. PlanError names a bad row."""
    share = 1 / len(settings.rows)
    tier = scenario.hardware_of(POPULATION, "device")
    of_tier = tier.model_dump(exclude_unset=True, by_alias=True)
    hardware = []
    links = []
    for row in settings.rows:
        try:
            spec = HardwareSpec.model_validate(over(of_tier, row.hardware))
            link = _link_of_row(row, usual, share, scenario.catalogue)
        except ValidationError as error:
            path, message = reworded(error, HardwareSpec)[0]
            problem = Problem(row.place, dotted(path), message)
            raise PlanError(("clients", "file"), str(problem)) from None
        except NetemError as error:
            raise PlanError(("clients", "file"), f"{row.place}: {error}") from None
        resolved = spec.resolve()
        hardware.append(HardwareShare(resolved.name, share, resolved.expected_speed))
        links.append(link)
    return hardware, links


def _link_of_row(
    row: ClientRow,
    usual: LinkShare,
    share: float,
    catalogue: Catalogue,
) -> LinkShare:
    """The usual link, with the settings of the row for both directions and then for each."""
    keys = {}
    for side, written in row.links.items():
        keys[side] = LinkKeys.model_validate(written, context={CATALOGUE: catalogue})
    both = keys.get("", LinkKeys())
    changes_up = both.changes(upward=True)
    up = usual.up.merged(changes_up)
    if "up" in keys:
        up = up.merged(keys["up"].changes())
    changes_down = both.changes()
    down = usual.down.merged(changes_down)
    if "down" in keys:
        down = down.merged(keys["down"].changes())
    name = both.profile or usual.name
    return LinkShare(name, share, up, down)


def _availability(
    spec: AvailabilitySpec | None,
    clients: int,
    seed: int,
) -> Availability:
    if spec is None:
        return Always(clients)
    if spec.table is not None:
        return FromTrace(clients, seed, spec.table)
    assert spec.day_and_night is not None
    settings = dict(spec.day_and_night)
    zones = {}
    for hours, share in settings.pop("time_zones").items():
        offset = float(hours.removesuffix("h")) * HOUR
        zones[offset] = share
    return DayAndNight(
        clients=clients,
        seed=seed,
        time_zones=zones,
        **settings,
    )
