"""Where the nodes of a host that is lost can run instead. Pure.

The rules are those of `orchestrator.planning.hosts.packing`, with what is left on the other hosts of the run: the nodes
that run there keep what they need. A node does not move

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
    candidates = []
    for host in plan.hosts:
        if host.name in hosts and host.hardware is None:
            candidate = Candidate(host)
            _take_present(plan, homes, leaving, candidate)
            candidates.append(candidate)
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

    def refused(
        request: Request,
        candidate: Candidate,
        group: Sequence[Request],
    ) -> str | None:
        """See `_hindrance`. Nodes without a host as yet look at their links when they get one."""
        host_by_node = dict(homes)
        for name in waiting:
            host_by_node.pop(name, None)
        for other in candidates:
            for taken in other.taken:
                host_by_node[taken.name] = other.host.name
        for member in group:
            host_by_node[member.name] = candidate.host.name
        own_links = links[request.name]
        return _hindrance(plan, request.name, own_links, host_by_node, between)

    def suits(group: Sequence[Request], candidate: Candidate) -> bool:
        return all(refused(request, candidate, group) is None for request in group)

    for request in pack(requests, candidates, suits):
        reasons = []
        for candidate in request.general:
            if request.memory > candidate.memory:
                reason = _lacks_memory(request, candidate)
            else:
                reason = str(refused(request, candidate, [request]))
            reasons.append(reason)
        staying[request.name] = f"no other host can take it: {'; '.join(reasons)}"
    new_hosts = {}
    new_reasons = {}
    for candidate in candidates:
        for request in candidate.taken:
            if request.name in waiting:
                new_hosts[request.name] = candidate.host.name
                new_reasons[request.name] = candidate.reasons[request.name]
    return Moves(new_hosts, new_reasons, staying)


def _take_present(
    plan: Plan,
    homes: Mapping[str, str],
    leaving: Collection[str],
    candidate: Candidate,
) -> None:
    """Reserve what the nodes need that run on the host already."""
    for node in plan.nodes:
        if homes[node.name] == candidate.host.name and node.name not in leaving:
            candidate.take(_request(plan, node, ()), "")


def _lacks_memory(request: Request, candidate: Candidate) -> str:
    left = max(0, candidate.memory)
    return f"{candidate.host.name} has {text.size(left)} of memory left, and it needs {text.size(request.memory)}"


def kept_apart(
    plan: Plan,
    homes: Mapping[str, str],
    node: str,
    between: Between,
) -> str | None:
    """Why a node cannot run on its host, now that others have moved. None if it can."""
    links = _by_node(plan)[node]
    return _hindrance(plan, node, links, homes, between)


def _allowed(
    plan: Plan,
    node: NodePlan,
    candidates: Sequence[Candidate],
) -> tuple[tuple[Candidate, ...], str]:
    """The hosts on which a node may run, and why there is none if there is none."""
    assert plan.placement is not None, "its nodes run on several hosts"
    board = plan.placement.boards.get(node.name)
    if board is not None:
        return (), f"it runs on a real {board}"
    for link in plan.links:
        if link.profile.real and node.name in (link.source, link.target):
            return (), "the network of its host is one of its links"
    if not candidates:
        return (), "no other host of the run can take nodes"
    names_allowed = plan.placement.allowed[node.name]
    allowed = [candidate for candidate in candidates if candidate.host.name in names_allowed]
    if not allowed:
        return (), f"`hosts` allows none of {_names(candidates)}"
    images = plan.images_of([node])
    with_images = []
    for candidate in allowed:
        present = plan.nodes_on(candidate.host.name)
        if images <= plan.images_of(present):
            with_images.append(candidate)
    reason = f"no node of the image {' and '.join(sorted(images))} runs on {_names(allowed)}"
    return tuple(with_images), reason


def _names(candidates: Iterable[Candidate]) -> str:
    return text.some(candidate.host.name for candidate in candidates)


def _request(plan: Plan, node: NodePlan, candidates: tuple[Candidate, ...]) -> Request:
    group = node.name
    if node.parent is not None and plan.node(node.parent).tier == "edge":
        group = node.parent
    return Request(
        node.name,
        node.tier,
        group,
        node.hardware,
        candidates,
        pin="",
        path=("hosts", node.tier),
    )


def _by_node(plan: Plan) -> Mapping[str, Sequence[AskedLink]]:
    links_by_node = defaultdict(list)
    for link in requested_links(plan.links, plan.faults):
        links_by_node[link.source].append(link)
        links_by_node[link.target].append(link)
    return links_by_node


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
            configured = text.duration(least_delay(link.fastest))
            needed = text.duration(underlay.delay + margin(underlay))
            return (
                f"{link.source} -> {link.target} is configured with {configured} one way,"
                f" and the network from {source} to {target} takes {needed} with a margin"
            )
    error = without_home(ways(plan.links, plan.faults), homes, node)
    if error is None:
        return None
    return error.message
