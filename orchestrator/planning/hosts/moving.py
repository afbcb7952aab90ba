"""Where the nodes of a host that is lost can live instead. Pure.

The rules are those of `orchestrator.planning.hosts.packing`, with what is left on the other hosts of the run: the nodes
that live there keep what they need. A node does not move

- from a real board, nor to one: its computing is that of the board, and each board is there for its own node;
- if one of its links is real: the network of its host is the link, and that of another host is another one;
- if the scenario's `hosts` allows no other host;
- to where a link of it would be faster than the network between the hosts, or a shared medium would have no home;
- with an image of its own, or of its programs, to a host that has no node of this image in the plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from orchestrator import text
from orchestrator.planning.hosts.crossings import AskedLink, least_delay, margin, too_fast
from orchestrator.planning.hosts.inventory import Underlay
from orchestrator.planning.hosts.media_homes import ways, without_home
from orchestrator.planning.hosts.on_hosts import requested_links
from orchestrator.planning.hosts.packing import Candidate, Request, pack
from orchestrator.planning.plan import NodePlan, Plan

Between = Mapping[tuple[str, str], Underlay]
"""What was measured between two hosts, by their names, in both orders; a host and itself have nothing between them."""


class Moves(NamedTuple):
    """The new ``hosts`` of nodes, the ``reasons`` for them, and why each other node does not move (``staying``)."""

    hosts: Mapping[str, str]
    reasons: Mapping[str, str]
    staying: Mapping[str, str]


def moves(
    plan: Plan,
    homes: Mapping[str, str],
    nodes: Iterable[str],
    hosts: Collection[str],
    between: Between,
) -> Moves:
    """Find new hosts for ``nodes`` of a lost host among ``hosts``. ``homes``: the hosts of nodes until now."""
    leaving = set(nodes)
    candidates = [Candidate(host) for host in plan.hosts if host.name in hosts and host.hardware is None]
    for candidate in candidates:
        for node in plan.nodes:
            if homes[node.name] == candidate.host.name and node.name not in leaving:
                candidate.take(_request(plan, node, ()), "")
    requests = []
    staying = {}
    for node in plan.nodes:
        if node.name in leaving:
            allowed, reason = _allowed(plan, node, candidates)
            if allowed:
                requests.append(_request(plan, node, allowed))
            else:
                staying[node.name] = reason
    links = _by_node(plan)
    waiting = {request.name for request in requests}

    def refused(request: Request, candidate: Candidate, group: Sequence[Request]) -> str | None:
        """See `_hindrance`. Nodes without a host as yet look at their links when they get one."""
        at = {name: host for name, host in homes.items() if name not in waiting}
        at |= {taken.name: each.host.name for each in candidates for taken in each.taken}
        at |= {each.name: candidate.host.name for each in group}
        return _hindrance(plan, request.name, links[request.name], at, between)

    def suits(group: Sequence[Request], candidate: Candidate) -> bool:
        return all(refused(request, candidate, group) is None for request in group)

    for request in pack(requests, candidates, suits):
        why = [
            f"{each.host.name} has {text.size(max(0, each.memory))} of memory left, and it needs "
            f"{text.size(request.memory)}"
            if request.memory > each.memory
            else str(refused(request, each, [request]))
            for each in request.general
        ]
        staying[request.name] = f"no other host can take it: {'; '.join(why)}"
    placed = {request.name: each for each in candidates for request in each.taken if request.name in waiting}
    return Moves(
        {name: each.host.name for name, each in placed.items()},
        {name: each.reasons[name] for name, each in placed.items()},
        staying,
    )


def kept_apart(plan: Plan, homes: Mapping[str, str], node: str, between: Between) -> str | None:
    """Why a node cannot run on its host, now that others have moved. None if it can."""
    return _hindrance(plan, node, _by_node(plan)[node], homes, between)


def _allowed(plan: Plan, node: NodePlan, candidates: Sequence[Candidate]) -> tuple[tuple[Candidate, ...], str]:
    """The hosts on which a node may live, and why there is none if there is none."""
    assert plan.placement is not None, "its nodes run on several hosts"
    board = plan.placement.boards.get(node.name)
    if board is not None:
        return (), f"it runs on a real {board}"
    if any(link.profile.real for link in plan.links if node.name in (link.source, link.target)):
        return (), "the network of its host is one of its links"
    if not candidates:
        return (), "no other host of the run can take nodes"
    allowed = [each for each in candidates if each.host.name in plan.placement.allowed[node.name]]
    if not allowed:
        return (), f"`hosts` allows none of {text.some(each.host.name for each in candidates)}"
    images = plan.images_of([node])
    found = tuple(each for each in allowed if images <= plan.images_of(plan.nodes_on(each.host.name)))
    hosts = text.some(each.host.name for each in allowed)
    return found, f"no node of the image {' and '.join(sorted(images))} runs on {hosts}"


def _request(plan: Plan, node: NodePlan, candidates: tuple[Candidate, ...]) -> Request:
    of_edge = node.parent is not None and plan.node(node.parent).tier == "edge"
    if of_edge and node.parent is not None:
        group = node.parent
    else:
        group = node.name
    return Request(node.name, node.tier, group, node.hardware, candidates, "", ("hosts", node.tier))


def _by_node(plan: Plan) -> Mapping[str, Sequence[AskedLink]]:
    found = defaultdict(list)
    for link in requested_links(plan.links, plan.faults):
        found[link.source].append(link)
        found[link.target].append(link)
    return found


def _hindrance(
    plan: Plan,
    node: str,
    links: Iterable[AskedLink],
    homes: Mapping[str, str],
    between: Between,
) -> str | None:
    """Why a node cannot move, in words: a link with too little delay, or media without a home."""
    for link in links:
        if link.source not in homes or link.target not in homes:
            continue
        source = homes[link.source]
        target = homes[link.target]
        underlay = between.get((source, target))
        if underlay is not None and too_fast(link, underlay):
            return (
                f"{link.source} -> {link.target} is configured with {text.duration(least_delay(link.fastest))} one way,"
                f" and the network from {source} to {target} takes {text.duration(underlay.delay + margin(underlay))} "
                "with a margin"
            )
    error = without_home(ways(plan.links, plan.faults), homes, node)
    return None if error is None else error.message
