"""When the hosts of a run on several hosts were there, where its nodes lived, and its notes with both in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from orchestrator import text
from orchestrator.record.events.run import Continued, HostChanged, NodeMoved, Note
from orchestrator.results.facts import Facts

THERE = "there"
NAMED = 24  # parts of a sentence about a lost host; most parts are nodes that moved


class Stay(NamedTuple):
    """A period in which a host was "there", "lost" or "unusable", in seconds since the run started, and the reason."""

    host: str
    state: str
    start: float
    end: float
    reason: str


class Move(NamedTuple):
    """From ``t`` on, in s of the run, a node runs on ``target``: ``source`` is lost. ``words`` says so."""

    t: float
    node: str
    source: str
    target: str
    words: str


def notes(history: Facts) -> list[str]:
    """The notes of a run, and what became of its hosts and of their nodes, in the order of the record."""
    sentences = []
    for event in history.events(Note.NAME, HostChanged.NAME, NodeMoved.NAME):
        if event.name == Note.NAME:
            sentences.append(str(Note.from_json(event.data).text))
        elif event.name == HostChanged.NAME:
            sentences.append(str(HostChanged.from_json(event.data)))
        elif event.node is None:
            sentences.append(str(NodeMoved.from_json(event.data)))
    return sentences


def moves(history: Facts) -> list[Move]:
    """The moves of nodes in the order of time. When the run is continued, its nodes are where the plan has them."""
    planned = {name: _planned_host(node) for name, node in history.nodes.items()}
    changes = []
    homes = dict(planned)
    for event in history.events(NodeMoved.NAME, Continued.NAME):
        if event.node is not None:
            continue
        changed = {}
        words = "the run is continued on its planned hosts"
        if event.name == Continued.NAME:
            changed = {node: host for node, host in planned.items() if homes[node] != host}
        else:
            moved = NodeMoved.from_json(event.data)
            node = str(moved.node)
            if node in homes and moved.target is not None:
                changed = {node: str(moved.target)}
                words = str(moved)
        for node, host in changed.items():
            changes.append(Move(event.t, node, homes[node], host, words))
        homes |= changed
    return changes


def host_of(history: Facts) -> Callable[[str, float], str]:
    """A function that gives the host on which a node ran at a time; empty if the run has one host only."""
    stays: dict[str, list[tuple[float, str]]] = {}  # by node, since when it was on which host
    for name, node in history.nodes.items():
        stays[name] = [(0.0, _planned_host(node))]
    for move in moves(history):
        stays[move.node].append((move.t, move.target))

    def host_at(node: str, t: float) -> str:
        for since, host in reversed(stays[node]):
            if since <= t:
                return host
        _, planned = stays[node][0]
        return planned

    return host_at


def _planned_host(node: Mapping[str, Any]) -> str:
    return str(node.get("host") or "")


def nodes_by_host(history: Facts) -> dict[str, list[str]]:
    """The nodes by the names of their planned hosts, both in the plan's order; empty if the run has one host only."""
    by_host: dict[str, list[str]] = {}
    for host in history.plan.get("hosts", ()):
        by_host[str(host["name"])] = []
    for name, node in history.nodes.items():
        by_host.setdefault(_planned_host(node), []).append(name)
    used = {host: nodes for host, nodes in by_host.items() if nodes}
    if len(used) > 1:
        return used
    return {}


def stays(history: Facts) -> list[Stay]:
    """The periods of each host. It is there before the first node starts, and again when the run is continued."""
    states = history.states()
    hosts = nodes_by_host(history)
    if not states or not hosts:
        return []
    first = states[0].t
    since = {host: (THERE, first, "") for host in hosts}
    periods = []

    def turn(host: str, state: str, t: float, reason: str) -> None:
        before, start, why = since[host]
        if before != state:
            periods.append(Stay(host, before, start, t, why))
            since[host] = state, t, reason

    for event in history.events(HostChanged.NAME, Continued.NAME):
        if event.node is not None:
            continue
        if event.name == Continued.NAME:
            for host in hosts:
                turn(host, THERE, event.t, "")
            continue
        changed = HostChanged.from_json(event.data)
        if changed.host in hosts:
            state = THERE if changed.state == "back" else str(changed.state)
            turn(changed.host, state, event.t, str(changed.reason))
    for host in hosts:
        turn(host, "", history.seconds, "")
    return [stay for stay in periods if stay.end > stay.start]


def lost_hosts(history: Facts) -> list[str]:
    """A sentence for each period in which a host was lost, with the nodes that moved away. Times are of training."""
    began = history.training_began or 0.0
    all_moves = moves(history)
    sentences = []
    for stay in stays(history):
        if stay.state == THERE:
            continue
        words = f"host {stay.host} was {stay.state} at {stay.start - began:.1f} s"
        if stay.end < history.seconds:
            words += f" until {stay.end - began:.1f} s"
        if stay.reason:
            words += f" ({stay.reason})"
        parts = [words]
        for move in all_moves:
            if move.source == stay.host and stay.start <= move.t < stay.end:
                parts.append(f"{move.node} moved to {move.target}")
        sentences.append(text.some(parts, NAMED))
    return sentences
