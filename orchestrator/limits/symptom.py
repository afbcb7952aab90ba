"""The first symptom of a failed run, from its record and its logs: where it shows, when, and what it says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator import text
from orchestrator.host.tail import end_of
from orchestrator.record.events.nodes import Connections
from orchestrator.results.checks.programs import asked_to_end, ended_programs
from orchestrator.results.history import History

LINES = 3  # of a log
LOG_BYTES = 20_000  # of the end of a log in which they are looked for
LONGEST_LINE = 300  # characters
OWN_LINE = "::edgebed"  # metrics, which are no words of the program


@dataclass(frozen=True)
class Symptom:
    """``at``: seconds of training. ``crashed``: whether a program or a node ended that should not have. ``lines``: the
    last of the program's log. ``connections``: the TCP connections in trouble, in words."""

    node: str
    at: float | None
    what: str
    crashed: bool
    lines: tuple[str, ...] = ()
    connections: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "at": self.at,
            "what": self.what,
            "lines": list(self.lines),
            "connections": list(self.connections),
        }


def first_symptom(history: History) -> Symptom | None:
    """The first symptom of a run that did not reach its goal; None if its record shows none."""
    began = history.training_began or 0.0
    connections = troubled_connections(history)
    words = tuple(text.some(own, 2) for own in connections.values())
    crash = _first_crash(history)
    if crash is not None:
        node, t, what, log = crash
        at = round(t - began, 3)
        lines = last_lines(history, log)
        return Symptom(node, at, what, crashed=True, lines=lines, connections=words)
    node, log = _waiting(history)
    if connections:
        first, own = next(iter(connections.items()))
        what = f"{first} waits for an answer: {own[0]}"
        lines = last_lines(history, log)
        return Symptom(first, None, what, crashed=False, lines=lines, connections=words)
    lines = last_lines(history, log)
    if not lines:
        return None
    return Symptom(node, None, f"{log} waits", crashed=False, lines=lines)


def _first_crash(history: History) -> tuple[str, float, str, str] | None:
    """The first end of a node or a program that no fault explains: node, time, words, name of the log."""
    until = asked_to_end(history)
    crashes = []
    for program in ended_programs(history):
        if program.code != 0 and program.t <= until:
            what = f"{program.label} ended ({program.how})"
            crashes.append((program.t, program.node, what, program.label))
    for state in history.states():
        if state.state == "crashed" and state.detail != "fault" and state.t <= until:
            crashes.append((state.t, state.node, f"{state.node} ended ({state.detail})", state.node))
    if not crashes:
        return None
    t, node, what, log = min(crashes)
    return node, t, what, log


def _waiting(history: History) -> tuple[str, str]:
    """The node with the program that should have ended the run, or the first leading one, and the name of its log."""
    for program in history.plan.get("programs") or ():
        if program.get("ends_the_run"):
            return program["node"], program["label"]
    leaders = history.leaders or tuple(history.nodes)
    return leaders[0], leaders[0]


def troubled_connections(history: History) -> dict[str, list[str]]:
    """By node: the connections that had repeated packets, unacknowledged bytes or no answer when the run ended."""
    troubled = {}
    for recorded in history.recorded(Connections):
        own = [in_words(connection) for connection in recorded.event.connections if _in_trouble(connection)]
        if recorded.node is not None and own:
            troubled[recorded.node] = own
    return troubled


def _in_trouble(connection: Mapping[str, Any]) -> bool:
    return bool(connection["repeats"] or connection["unacknowledged"] or connection["state"] == "syn-sent")


def in_words(connection: Mapping[str, Any]) -> str:
    """A connection like ``syn-sent to 10.77.0.0:9000, repeated 3 times``."""
    words = [f"{connection['state']} to {connection['peer']}"]
    if connection["unacknowledged"]:
        words.append(f"{text.size(connection['unacknowledged'])} unacknowledged")
    if connection["repeats"]:
        words.append(f"repeated {text.count(connection['repeats'], 'time')}")
    return ", ".join(words)


def last_lines(history: History, log: str) -> tuple[str, ...]:
    """The last lines of a log that are the program's own words."""
    path = Path(history.directory) / "logs" / f"{log}.log"
    return tuple(own_lines(end_of(path, LOG_BYTES).splitlines()))


def own_lines(lines: Iterable[str]) -> Sequence[str]:
    """The last lines that are neither empty nor metrics, each with visible characters only."""
    kept = []
    for line in lines:
        words = text.visible(line).strip()
        if words and not words.startswith(OWN_LINE):
            kept.append(words[:LONGEST_LINE])
    return kept[-LINES:]
