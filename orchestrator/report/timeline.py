"""The report's timeline: rounds, what nodes did, their faults, and when their hosts were there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator import text
from orchestrator.report.activity import activities
from orchestrator.report.figures import FAULTS, LEAST, time_axis
from orchestrator.report.marks import Figure, Mark, axis, bars, figure, rounded
from orchestrator.results.facts import IN_ROUND, RUNNING, WAITING
from orchestrator.results.presence import THERE, moves, nodes_by_host, stays
from orchestrator.results.record.history import History

STATES = {
    name: f"var(--state-{name.replace(' ', '-')})"
    for name in (
        *("starting", "registered", IN_ROUND, WAITING, RUNNING),
        *("paused", "crashed", "restarting", "left", "failed"),
    )
}
HOST_STATES = {THERE: "var(--many)", "lost": "var(--crash)", "unusable": "var(--state-failed)"}
ROUND = ("var(--round-even)", "var(--round-odd)")
ABANDONED = "var(--state-crashed)"
MOVED = "var(--moved)"
ALL_NODES = 40  # in larger runs, the timeline leaves out nodes to which nothing happened
THICK, THIN = 0.78, 0.3  # of a row


@dataclass(frozen=True)
class Bar:
    """A period in one row of the timeline."""

    row: int
    start: float
    end: float
    hover: str
    text: str = ""


def timeline(history: History) -> tuple[Figure, int]:
    """The timeline: rounds of the coordinators above the nodes' states and faults; and the number of omitted nodes. In
    a run on several hosts each host has a row, and its nodes by the plan are below it."""
    began = history.training_began or 0.0
    counting = {each.node for each in history.rounds()}
    coordinators = [name for name in history.nodes if name in counting]
    shown = _shown(history)
    labels = [f"{name} rounds" for name in coordinators]
    rows: dict[str, int] = {}
    hosts: dict[str, int] = {}
    for host, nodes in (nodes_by_host(history) or {"": shown}).items():
        if host:
            hosts[host] = len(labels)
            labels.append(f"host {host}")
        for name in shown:
            if name in nodes:
                rows[name] = len(labels)
                labels.append(name)
    pitch = 19 if len(labels) <= 45 else 13
    marks = [
        *_round_bars(history, {name: index for index, name in enumerate(coordinators)}, began),
        *_host_bars(history, hosts, began),
        *_move_bars(history, hosts, rows, began),
        *_state_bars(history, rows, began),
        *_fault_bars(history, rows, began),
    ]
    rules = [row - 0.5 for row in (hosts.values() or (len(coordinators),)) if 0 < row < len(labels)]
    whole = None if history.training_began is None else (0.0, max(round(history.seconds - began, 3), 1e-3))
    x = axis(time_axis(history), range=whole)
    drawn = figure(
        "Rounds, nodes and faults over time", x, axis(labels=labels), marks, pitch * len(labels), rules=rules
    )
    return drawn, len(history.nodes) - len(shown)


def _shown(history: History) -> list[str]:
    """The nodes that get a row: all, or in a large run the leaders and the nodes to which something happened."""
    if len(history.nodes) <= ALL_NODES:
        return list(history.nodes)
    touched = {node for span in history.faults() if span.start is not None for node in span.nodes}
    usual = {"planned", "starting", "registered", "running", "done"}
    touched |= {state.node for state in history.states() if state.state not in usual}
    return [name for name in history.nodes if name in touched or name in history.leaders]


def _round_bars(history: History, rows: dict[str, int], began: float) -> list[Mark]:
    groups: dict[str, list[Bar]] = {"round": [], "next round": [], "abandoned round": []}
    for each, end in history.rounds_with_ends():
        lasted = "did not end" if each.end is None else text.duration(end - each.start)
        hover = f"{each.node}: round {each}, {lasted}{', abandoned' if each.abandoned else ''}"
        group = "abandoned round" if each.abandoned else ("round", "next round")[(each.edge_round or each.round) % 2]
        number = str(each.edge_round or each.round)
        groups[group].append(Bar(rows[each.node], each.start - began, end - began, hover, number))
    colours = (*ROUND, ABANDONED)
    marks = [_bars(name, bars, colour, THICK) for (name, bars), colour in zip(groups.items(), colours, strict=True)]
    for mark in marks[:2]:
        mark["group"] = "rounds, every other darker"
    return [mark for mark in marks if mark["x0"]]


def _host_bars(history: History, rows: Mapping[str, int], began: float) -> list[Mark]:
    groups: dict[str, list[Bar]] = {state: [] for state in HOST_STATES}
    for stay in stays(history):
        if stay.host in rows and stay.state in groups:
            reason = f" ({stay.reason})" if stay.reason else ""
            hover = f"host {stay.host}: {stay.state}{reason}, {text.duration(stay.end - stay.start)}"
            groups[stay.state].append(Bar(rows[stay.host], stay.start - began, stay.end - began, hover))
    return [_bars(f"host {name}", bars, HOST_STATES[name], THICK) for name, bars in groups.items() if bars]


def _move_bars(history: History, hosts: Mapping[str, int], rows: Mapping[str, int], began: float) -> list[Mark]:
    """The moments at which nodes moved to another host: in the rows of both hosts, and of the node."""
    bars = [
        Bar(row, move.t - began, move.t - began + LEAST * history.seconds, move.words)
        for move in moves(history)
        for row in (hosts.get(move.source), hosts.get(move.target), rows.get(move.node))
        if row is not None
    ]
    return [_bars("node moves", bars, MOVED, THICK)] if bars else []


def _state_bars(history: History, rows: dict[str, int], began: float) -> list[Mark]:
    groups: dict[str, list[Bar]] = {state: [] for state in STATES}
    for node, stretches in activities(history).items():
        for each in stretches if node in rows else ():
            if each.what in groups and each.end > each.start:
                hover = f"{node}: {each.what} ({each.detail}), {text.duration(each.end - each.start)}" * bool(
                    each.detail
                )
                groups[each.what].append(Bar(rows[node], each.start - began, each.end - began, hover))
    return [_bars(name, bars, STATES[name], THICK) for name, bars in groups.items() if bars]


def _fault_bars(history: History, rows: dict[str, int], began: float) -> list[Mark]:
    groups: dict[str, list[Bar]] = {action: [] for action in FAULTS}
    last = history.seconds
    for span in history.faults():
        if span.start is None or span.action not in groups:
            continue
        end = last if span.end is None else span.end
        least = span.start + LEAST * last
        length = f", {text.duration(end - span.start)}" if span.end is not None else ""
        by_hand = f", manual ({span.by})" if span.by else ""
        hover = f"{span.action} {span.target}{length}{by_hand}"
        for node in span.nodes:
            if node in rows:
                bar = Bar(rows[node], span.start - began, max(end, least) - began, hover)
                groups[span.action].append(bar)
    return [_bars(name, bars, FAULTS[name], THIN) for name, bars in groups.items() if bars]


def _bars(name: str, of: Sequence[Bar], colour: str, thick: float) -> Mark:
    return bars(
        name,
        [rounded((bar.start, bar.end, bar.row - thick / 2, bar.row + thick / 2)) for bar in of],
        colour,
        notes=[bar.hover for bar in of] if any(bar.hover for bar in of) else (),
        texts=[bar.text for bar in of] if any(bar.text for bar in of) else (),
    )
