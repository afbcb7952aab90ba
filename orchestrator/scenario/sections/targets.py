"""The possible targets of a fault rule: nodes, and directions of links."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from orchestrator.scenario.sections.faults import FaultSpec
from orchestrator.scenario.sections.topology import Ends, Topology


def links_by_node(links: Iterable[Ends]) -> dict[str, list[Ends]]:
    """The directions from or to each node."""
    found: defaultdict[str, list[Ends]] = defaultdict(list)
    for link in links:
        for node in link:
            found[node].append(link)
    return found


def links_between(a: Collection[str], b: Collection[str], links: Iterable[Ends]) -> tuple[Ends, ...]:
    """The directions between the two sides, both ways."""
    return tuple(link for link in links if (link[0] in a and link[1] in b) or (link[0] in b and link[1] in a))


def candidates(spec: FaultSpec, topology: Topology) -> list[str]:
    """The nodes that a rule may hit."""
    return [spec.node] if spec.node is not None else spec.nodes or topology.group(spec.of or "")


def affected(spec: FaultSpec, topology: Topology, links: Sequence[Ends]) -> tuple[Ends, ...]:
    """The directions that a rule may affect, whichever nodes are drawn."""
    if spec.between is not None:
        a, b = (set(topology.expand(side)) for side in spec.between)
        return links_between(a, b, links)
    touching = links_by_node(links)
    return tuple(dict.fromkeys(link for node in candidates(spec, topology) for link in touching[node]))
