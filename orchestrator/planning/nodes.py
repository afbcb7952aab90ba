"""The nodes of a plan: their places in the topology, their models and data, their hardware.

Node number n (the cloud first, then edges, then devices) has the address 10.77.0.0 + n.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from node.assignment import Tier
from node.catalogue.models import model_of
from orchestrator.errors import PlanError
from orchestrator.planning.addresses import NETWORK
from orchestrator.planning.faults.timeline import FaultTime
from orchestrator.planning.learning.shards import Shards
from orchestrator.planning.plan import NodePlan
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.alternatives import listed
from orchestrator.scenario.sections.compute import PROCESSOR
from orchestrator.scenario.sections.topology import Member, Pair

PORT = 7000  # of every node, since each has a network namespace of its own


def plan_nodes(
    scenario: Scenario,
    shards: Shards,
    late: Mapping[str, FaultTime],
) -> tuple[NodePlan, ...]:
    """The nodes in the order of the topology. ``late``: when those join that are not present from the start."""
    children, neighbours = _relations(scenario.members, scenario.pairs)
    leading = set(scenario.leaders)
    visits = defaultdict[str, list[str]](list)
    for pair in scenario.visits:
        visits[pair.lower].append(pair.upper)
        visits[pair.upper].append(pair.lower)
    nodes = []
    number_in_tier: Counter[Tier] = Counter()
    for index, member in enumerate(scenario.members, start=1):
        name = member.name
        tier = member.tier
        model, model_params = _model(scenario, name, number_in_tier[tier])
        number_in_tier[tier] += 1
        counts = shards.counts[name] if name in shards.train else ()
        hardware = scenario.hardware_of(name, tier)
        stack = scenario.stack_of(name, tier)
        node = NodePlan(
            name=name,
            tier=tier,
            index=index,
            address=str(NETWORK[index]),
            mac=f"02:ed:00:00:{index >> 8:02x}:{index & 0xFF:02x}",
            port=PORT,
            parent=member.parent,
            children=tuple(children[name]),
            neighbours=tuple(neighbours[name]),
            hardware=hardware.resolve(),
            samples=sum(counts),
            label_counts=counts,
            test_counts=shards.test_counts.get(name, ()),
            leads=name in leading,
            joins=late.get(name),
            model=model,
            model_params=model_params,
            image=hardware.image,
            device=scenario.device_of(name, tier),
            stack=stack.settings(),
            visits=tuple(visits[name]),
        )
        nodes.append(node)
    return tuple(nodes)


def _model(
    scenario: Scenario,
    node: str,
    number_in_tier: int,
) -> tuple[str, dict[str, Any]]:
    """The model of a node and its parameters; empty without an algorithm."""
    if scenario.algorithm is None:
        return "", {}
    model, params = model_of(scenario.model.name, scenario.model.params, number_in_tier)
    params |= scenario.adapters(node)
    return model, params


def _relations(
    members: list[Member],
    pairs: list[Pair],
) -> tuple[Mapping[str, list[str]], Mapping[str, list[str]]]:
    """Children and neighbours of each node, in the order of nodes."""
    children: defaultdict[str, list[str]] = defaultdict(list)
    neighbours: defaultdict[str, list[str]] = defaultdict(list)
    for member in members:
        if member.parent is not None:
            children[member.parent].append(member.name)
    for pair in pairs:
        if pair.link_class == "edge-edge":
            neighbours[pair.lower].append(pair.upper)
            neighbours[pair.upper].append(pair.lower)
    return children, neighbours


def refuse_stretched_accelerators(nodes: Iterable[NodePlan]) -> None:
    """Raise PlanError if a node trains on an accelerator and emulates the speed of a slower processor: its steps are
    stretched by their processor time, which does not show how long an accelerator took."""
    for node in nodes:
        if node.device != PROCESSOR and node.hardware.speed is not None:
            raise PlanError(
                ("hardware", node.tier),
                f"{node.name} emulates the speed of a processor ({node.hardware.name}) and cannot train"
                f" on {node.device} at the same time: take the class host, a real board, or the driver"
                f" {listed(simulated=True)}",
            )
