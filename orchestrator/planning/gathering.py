"""How the updates of a round are gathered: quorum and deadlines, from the work of the nodes and their links."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from netem.profile import LinkProfile
from node.assignment import Tier
from node.catalogue.datasets import Form
from node.catalogue.sizes import Size
from orchestrator.planning.learning.deadlines import RoundWork, TierNodes, deadlines
from orchestrator.planning.learning.shards import PreparedLabels
from orchestrator.planning.plan import GatheringPlan, NodePlan
from orchestrator.population.population import Population
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.topology import Ends

_TIERS: tuple[Tier, ...] = ("edge", "cloud")  # from the bottom up


class System(NamedTuple):
    """The nodes and what is between them. ``links``: the profiles to plan with, by direction; ``clients``: those of a
    population, up and down."""

    nodes: tuple[NodePlan, ...]
    links: Mapping[Ends, Sequence[LinkProfile]]
    population: Population | None
    clients: tuple[list[LinkProfile], list[LinkProfile]] | None


def round_work(
    scenario: Scenario,
    system: System,
    sizes: list[Size],
    form: Form,
    data: PreparedLabels | None,
) -> RoundWork:
    """The work of a round. ``sizes``: of the models. ``data``: None if it has not been read."""
    devices = _of_tier(system.nodes, "device")
    edges = _of_tier(system.nodes, "edge")
    tests = 0 if data is None else len(data.test)
    population = system.population
    labels = math.prod(form.labels)
    clients = _workers(scenario, devices or edges, tests, labels)
    if population is not None:
        clients = replace(
            clients,
            count=population.asked,
            samples=int(population.sample_counts.max()),
            speed=float(population.speeds.min()),
        )
    above = None
    if devices and edges:
        above = _workers(scenario, edges, tests, labels)
    return RoundWork(sizes, form.shape, form.classes, clients, above)


def _of_tier(nodes: Iterable[NodePlan], tier: Tier) -> list[NodePlan]:
    return [node for node in nodes if node.tier == tier]


def _workers(
    scenario: Scenario,
    nodes: list[NodePlan],
    test: int,
    labels: int,
) -> TierNodes:
    """Nodes of one tier. ``test``: the samples of the global test set. ``labels``: the number of labels of a sample."""
    return TierNodes(
        count=len(nodes),
        speed=min(node.hardware.expected_speed for node in nodes),
        samples=max(node.samples for node in nodes),
        tests=max(tests_of(scenario, node, test, labels) for node in nodes),
    )


def tests_of(
    scenario: Scenario,
    node: NodePlan,
    test: int,
    labels: int,
) -> int:
    """The number of test samples that a node evaluates on: its own, and of some nodes the global test set."""
    own = sum(node.test_counts) // labels
    if scenario.scheme.personal or node.leads:
        return own + test
    return own


def plan_gathering(scenario: Scenario, work: RoundWork, system: System) -> GatheringPlan:
    tiers = []
    for tier in _TIERS:
        members = _of_tier(system.nodes, tier)
        if any(node.children for node in members):
            if system.clients is None:
                down, up = _links_below(members, system.links)
            else:
                up, down = system.clients
            tiers.append((tier, down, up))
    if not tiers:  # edges without cloud and devices
        level = [profile for profiles in system.links.values() for profile in profiles]
        tiers.append(("edge", level, level))
    configured = scenario.gathering
    waits = deadlines(
        work,
        scenario.parameters,
        tiers,
        given=_seconds(configured.deadline),
        given_above=_seconds(configured.cloud_deadline),
        across=_between_clients(system),
    )
    quorum = configured.quorum
    return GatheringPlan(quorum.share, quorum.count, configured.late, waits)


def _links_below(
    parents: Iterable[NodePlan], links: Mapping[Ends, Sequence[LinkProfile]]
) -> tuple[list[LinkProfile], list[LinkProfile]]:
    """The profiles down to the children of these nodes, and up."""
    parent_by_child = {}
    for node in parents:
        for child in node.children:
            parent_by_child[child] = node.name
    down: list[LinkProfile] = []
    up: list[LinkProfile] = []
    for (source, target), profiles in links.items():
        if parent_by_child.get(target) == source:
            down.extend(profiles)
        if parent_by_child.get(source) == target:
            up.extend(profiles)
    return down, up


def _between_clients(system: System) -> list[LinkProfile]:
    """The profiles of links between the nodes that hold data."""
    clients = _of_tier(system.nodes, "device") or _of_tier(system.nodes, "edge")
    names = {node.name for node in clients}
    across: list[LinkProfile] = []
    for ends, profiles in system.links.items():
        if names.issuperset(ends):
            across.extend(profiles)
    return across


def _seconds(deadline: float | Literal["auto"]) -> float | None:
    if deadline == "auto":
        return None
    return float(deadline)
