"""A plan whose nodes live on several hosts."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from orchestrator.planning.hosts.crossings import AskedLink, refuse_real_within_hosts
from orchestrator.planning.hosts.inventory import Inventory
from orchestrator.planning.hosts.placement import place
from orchestrator.planning.plan import NodePlan, Plan
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.compute import PROCESSOR
from orchestrator.scenario.sections.hardware import HardwareClass
from orchestrator.scenario.sections.links import resolve
from orchestrator.scenario.sections.topology import Ends


def on_hosts(plan: Plan, scenario: Scenario, inventory: Inventory) -> Plan:
    """The plan with a host for each node. A node on a real board has the board's hardware, which is not emulated.

    Raises PlanError as `place` does, or if a real link does not cross hosts.
    """
    hardware = {node.name: node.hardware for node in plan.nodes}
    members, links = scenario.topology.members(), list(asked_links(plan))
    devices = {node.name: node.device for node in plan.nodes if node.device != PROCESSOR}
    placement = place(members, hardware, scenario.hosts, links, inventory, devices)
    entries = resolve(scenario.links, scenario.topology.pairs(scenario.mesh)).real
    refuse_real_within_hosts(links, placement.hosts, entries)

    def placed(node: NodePlan) -> NodePlan:
        board = placement.boards.get(node.name)
        own = node.hardware if board is None else HardwareClass(board)
        return replace(node, host=placement.hosts[node.name], hardware=own)

    lived_on = set(placement.hosts.values())
    hosts = sorted((host for host in inventory.hosts if host.name in lived_on), key=lambda host: host.name)
    return replace(plan, nodes=tuple(map(placed, plan.nodes)), hosts=tuple(hosts), placement=placement)


def asked_links(plan: Plan) -> Iterator[AskedLink]:
    """The links with the profiles that their schedules and the faults give them."""
    changes: defaultdict[Ends, dict[str, dict[str, Any]]] = defaultdict(dict)  # the faults' different ones
    for fault in plan.faults:
        if fault.profile is not None:
            for ends in fault.links:
                changes[ends][json.dumps(fault.profile, sort_keys=True)] = fault.profile
    for link in plan.links:
        changed = changes[link.source, link.target].values()
        degraded = [profile.merged(change) for profile in link.extremes for change in changed]
        yield AskedLink(link.source, link.target, link.link_class, (*link.extremes, *degraded))
