"""A host for each node of a plan, under a driver of several hosts."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.planning.faults.timeline import Fault
from orchestrator.planning.hosts.crossings import AskedLink, refuse_real_within_hosts
from orchestrator.planning.hosts.inventory import HostFacts, Inventory
from orchestrator.planning.hosts.media_homes import media_groups, media_homes, ways, without_home
from orchestrator.planning.hosts.placement import Placement, place
from orchestrator.planning.plan import LinkPlan, NodePlan
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.compute import PROCESSOR
from orchestrator.scenario.sections.hardware import HardwareClass
from orchestrator.scenario.sections.topology import Ends


def on_hosts(
    nodes: Sequence[NodePlan],
    links: Sequence[LinkPlan],
    faults: Sequence[Fault],
    scenario: Scenario,
    inventory: Inventory,
) -> tuple[tuple[NodePlan, ...], tuple[HostFacts, ...], Placement]:
    """The nodes with their hosts, these hosts, and the placement. A node on a board has its hardware, not emulated.
    PlanError as `place`, for a real link within a host, or a medium without a home."""
    hardware = {}
    devices = {}
    for node in nodes:
        hardware[node.name] = node.hardware
        if node.device != PROCESSOR:
            devices[node.name] = node.device
    requests = list(requested_links(links, faults))
    over_media = ways(links, faults)
    placement = place(
        scenario.members,
        hardware,
        scenario.hosts,
        requests,
        inventory,
        devices,
        groups=media_groups(over_media, hardware),
    )
    refuse_real_within_hosts(requests, placement.hosts, scenario.resolved_links.real)
    error = without_home(over_media, placement.hosts)
    if error is not None:
        raise error
    homes = media_homes(over_media, placement.hosts)
    placement = replace(placement, media=homes)
    placed = []
    for node in nodes:
        host = placement.hosts[node.name]
        board = placement.boards.get(node.name)
        own = node.hardware if board is None else HardwareClass(board)
        placed.append(replace(node, host=host, hardware=own))
    names = set(placement.hosts.values())
    used = [host for host in inventory.hosts if host.name in names]
    used.sort(key=lambda host: host.name)
    return tuple(placed), tuple(used), placement


def requested_links(links: Iterable[LinkPlan], faults: Iterable[Fault]) -> Iterator[AskedLink]:
    """The links with the profiles that their schedules and the faults give them."""
    # different changes by link, each with its text
    changes: defaultdict[Ends, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for fault in faults:
        if fault.profile is not None:
            for ends, change in fault.changes_by_link().items():
                written = json.dumps(change, sort_keys=True)
                changes[ends][written] = change
    for link in links:
        ends = (link.source, link.target)
        profiles = list(link.extremes)
        for profile in link.extremes:
            for change in changes[ends].values():
                profiles.append(profile.merged(change))
        yield AskedLink(link.source, link.target, link.link_class, tuple(profiles))
