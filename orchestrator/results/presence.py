"""When the hosts of a run on several hosts were there, where its nodes lived, and its notes with both in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from orchestrator import text
from orchestrator.results.facts import Facts
from orchestrator.results.record import CONTINUED, HOST, MOVED
from orchestrator.results.rows import Event

THERE = "there"
NAMED = 24  # parts of a sentence about a lost host, of which most are nodes that moved
_SAID = {
    "lost": "the host {host} is lost: {reason}",
    "back": "the host {host} is there again",
    "unusable": "the host {host} cannot be used again: {reason}",
}


class Stay(NamedTuple):
    """A period in which a host was "there", "lost" or "unusable", in seconds since the run began, and the reason."""

    host: str
    state: str
    start: float
    end: float
    reason: str


class Move(NamedTuple):
    """From ``t`` on, in seconds since the run began, a node lives on ``target``, because the host ``source`` is lost.
    ``words`` tells it."""

    t: float
    node: str
    source: str
    target: str
    words: str


def in_words(name: str, data: Mapping[str, Any]) -> str:
    """What became of a host or of a node of it, from an event's name and data."""
    if name == MOVED:
        return _moved_in_words(data)
    said = _SAID.get(str(data.get("state")), "the host {host} is {state}: {reason}")
    return said.format(**{"host": "", "state": "", "reason": ""} | dict(data))


def _moved_in_words(data: Mapping[str, Any]) -> str:
    node, source, target, reason, age = (data.get(key) for key in ("node", "from", "to", "reason", "checkpoint"))
    if target is None:
        return f"{node} cannot move from {source}: {reason}"
    known = isinstance(age, int | float)
    checkpoint = f"its checkpoint of {text.duration(age)} before" if known else "no checkpoint"
    return f"{node} moves from {source} to {target}, with {checkpoint}: {reason}"


def notes(history: Facts) -> list[str]:
    """The notes of a run, and what became of its hosts and of their nodes, in the order of the record."""
    return [
        str(event.data.get("text", "")) if event.name == "note" else in_words(event.name, event.data)
        for event in history.events("note", HOST, MOVED)
        if event.name != MOVED or event.node is None
    ]


def moves(history: Facts) -> list[Move]:
    """The moves of nodes in the order of time. When the run is continued, its nodes are where the plan has them."""
    planned = {name: str(node.get("host") or "") for name, node in history.nodes.items()}
    found, homes = [], dict(planned)
    for event in history.events(MOVED, CONTINUED):
        if event.node is not None:
            continue
        changed, words = {}, "the run is continued on its planned hosts"
        if event.name == CONTINUED:
            changed = {node: host for node, host in planned.items() if homes[node] != host}
        elif (node := str(event.data.get("node"))) in homes and event.data.get("to") is not None:
            changed, words = {node: str(event.data["to"])}, in_words(MOVED, event.data)
        found += [Move(event.t, node, homes[node], host, words) for node, host in changed.items()]
        homes |= changed
    return found


def lost_hosts(events: Iterable[Event], began: float) -> list[str]:
    """A sentence for each loss of a host, with the nodes that moved away from it. ``events``: `HOST`, `MOVED` and
    `CONTINUED` in the order of the record, of the orchestrator. Times in the sentences are seconds since ``began``."""
    losses: list[list[str]] = []
    away: dict[str, list[str]] = {}  # by host, the loss that is not over
    for event in events:
        if event.node is not None:
            continue
        host, state, node, target = (str(event.data.get(key)) for key in ("host", "state", "node", "to"))
        at = f"at {event.t - began:.1f} s"
        reason = f" ({event.data['reason']})" if event.data.get("reason") else ""
        if event.name == CONTINUED:
            away.clear()
        elif event.name == MOVED:
            moved = f"moved to {target}" if event.data.get("to") is not None else "cannot move"
            away.get(str(event.data.get("from")), []).append(f"{node} {moved}")
        elif state == "lost":
            away[host] = [f"host {host} was lost {at}{reason}"]
            losses.append(away[host])
        elif host in away:
            away[host].append(f"it was {state} {at}{reason}")
            if state == "back":
                del away[host]
    return [text.some(parts, NAMED) for parts in losses]


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
    states, hosts = history.states(), nodes_by_host(history)
    if not states or not hosts:
        return []
    since = {host: (THERE, states[0].t, "") for host in hosts}
    found = []

    def turn(host: str, state: str, t: float, reason: str) -> None:
        before, start, why = since[host]
        if before != state:
            found.append(Stay(host, before, start, t, why))
            since[host] = state, t, reason

    for event in history.events(HOST, CONTINUED):
        if event.node is not None:
            continue
        if event.name == CONTINUED:
            for host in hosts:
                turn(host, THERE, event.t, "")
        elif (host := str(event.data.get("host"))) in hosts:
            state = str(event.data.get("state"))
            turn(host, THERE if state == "back" else state, event.t, str(event.data.get("reason", "")))
    for host in hosts:
        turn(host, "", history.seconds, "")
    return [each for each in found if each.end > each.start]
