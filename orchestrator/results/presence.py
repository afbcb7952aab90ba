"""When the hosts of a run on several hosts were there, where its nodes lived, and its notes with both in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from orchestrator import text
from orchestrator.record.events.run import Continued, HostChanged, NodeMoved, Note
from orchestrator.results.facts import Facts

THERE = "there"
NAMED = 24  # parts of a sentence about a lost host; most parts are nodes that moved


class Stay(NamedTuple):
    """A period in which a host was "there", "lost" or "unusable", in seconds since the run began, and the reason."""

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
    planned = {name: str(node.get("host") or "") for name, node in history.nodes.items()}
    found = []
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
        found += [Move(event.t, node, homes[node], host, words) for node, host in changed.items()]
        homes |= changed
    return found


def host_of(history: Facts) -> Callable[[str, float], str]:
    """Tells the host on which a node lived at a time; empty if the run has one host only."""
    lived: dict[str, list[tuple[float, str]]] = {
        name: [(0.0, str(node.get("host") or ""))] for name, node in history.nodes.items()
    }
    for move in moves(history):
        lived[move.node].append((move.t, move.target))
    return lambda node, t: next((host for since, host in reversed(lived[node]) if since <= t), lived[node][0][1])


def nodes_by_host(history: Facts) -> dict[str, list[str]]:
    """The nodes by the names of their planned hosts, both in the plan's order; empty if the run has one host only."""
    found: dict[str, list[str]] = {str(host["name"]): [] for host in history.plan.get("hosts", ())}
    for name, node in history.nodes.items():
        found.setdefault(str(node.get("host") or ""), []).append(name)
    found = {host: nodes for host, nodes in found.items() if nodes}
    return found if len(found) > 1 else {}


def stays(history: Facts) -> list[Stay]:
    """The periods of each host. It is there before the first node starts, and again when the run is continued."""
    states = history.states()
    hosts = nodes_by_host(history)
    if not states or not hosts:
        return []
    since = {host: (THERE, states[0].t, "") for host in hosts}
    found = []

    def turn(host: str, state: str, t: float, reason: str) -> None:
        before, start, why = since[host]
        if before != state:
            found.append(Stay(host, before, start, t, why))
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
    return [each for each in found if each.end > each.start]


def lost_hosts(history: Facts) -> list[str]:
    """A sentence for each period in which a host was lost, with the nodes that moved away. Times are of training."""
    began = history.training_began or 0.0
    moved = moves(history)
    found = []
    for stay in stays(history):
        if stay.state != THERE:
            over = f" until {stay.end - began:.1f} s" * (stay.end < history.seconds)
            reason = f" ({stay.reason})" if stay.reason else ""
            said = f"host {stay.host} was {stay.state} at {stay.start - began:.1f} s{over}{reason}"
            away = [each for each in moved if each.source == stay.host and stay.start <= each.t < stay.end]
            found.append(text.some([said, *(f"{each.node} moved to {each.target}" for each in away)], NAMED))
    return found
