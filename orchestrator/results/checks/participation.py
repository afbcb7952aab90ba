"""The check that every client contributed: that its answers were used, in one round at least.

Links and nodes may do all that is configured, and training may succeed, while the updates of a client never count. The
nodes that collect answers record whose messages they used and why others were left out (`node.messaging.exchange`).

A client whose messages were refused, never received, or cut off by an automatic deadline fails the check. It is
unknown where the scenario or the algorithm may want it so: a deadline that the scenario gives, a quorum that was not
met, an asynchronous server that other clients kept busy. Planned faults excuse a client that did not answer in time,
and so does an algorithm that did not ask it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from orchestrator import text
from orchestrator.record.events.nodes import (
    BadMessage,
    Contributed,
    Joined,
    Late,
    Lost,
    NotFinite,
    RoundAbandoned,
    Unanswered,
    Unreceived,
)
from orchestrator.record.rows import POPULATION, Event
from orchestrator.results.checks.verdicts import Assessment, Verdict
from orchestrator.results.evaluation.population import parts
from orchestrator.results.history import History

_AGAINST = (
    BadMessage.NAME,
    NotFinite.NAME,
    Unreceived.NAME,
    Unanswered.NAME,
    Late.NAME,
    RoundAbandoned.NAME,
)
"""The events that say why messages did not count. Of a client's events, the first of these is shown."""
_LAST = len(_AGAINST)


Found = tuple[int, int, dict[str, "Reason"]]
"""The number of clients, of those that contributed, and why each of the others did not, as far as that is no fault of
the plan."""


class Reason(NamedTuple):
    """Why messages of a client did not count. ``order``: the smallest of a client's reasons is shown."""

    order: int
    verdict: Verdict
    words: str


def participation(history: History) -> Assessment | None:
    """Check that every client that was up contributed. None for programs, and if nothing was collected or recorded."""
    if history.plan.get("programs") or history.training_began is None:
        return None
    known = history.events(Contributed.NAME, Unanswered.NAME, Unreceived.NAME)
    known = known or [event for event in history.events(RoundAbandoned.NAME) if "peers" in event.data]
    if not known and not history.plan.get(POPULATION):
        return None  # nothing was collected, or an earlier version wrote the record
    found = (_of_population if history.plan.get(POPULATION) else _of_clients)(history)
    if found is None:
        return None
    clients, counted, reasons = found
    remark = "".join(f"; {words}" for words in _never_received(history))
    if not reasons:
        idle = clients - counted
        if not idle:
            return "pass", f"all of {text.count(clients, 'client')} contributed{remark}"
        excused = f"{idle:,} {'was' if idle == 1 else 'were'} away as planned or not selected"
        if history.plan.get(POPULATION):
            excused = "the others were not selected, went away or were not needed"
        return "pass", f"{counted:,} of {text.count(clients, 'client')} contributed; {excused}{remark}"
    if history.status == "running":
        missing = f"{len(reasons)} of {text.count(clients, 'client')}"
        return "unknown", f"the run is going on: {missing} have not contributed so far"
    alike: defaultdict[Reason, list[str]] = defaultdict(list)
    for name, reason in reasons.items():
        alike[reason].append(name)
    listed = "; ".join(f"{text.some(alike[reason])}: {reason.words}" for reason in sorted(alike))
    worst: Verdict = "fail" if any(reason.verdict == "fail" for reason in alike) else "unknown"
    return worst, f"{len(reasons)} of {text.count(clients, 'client')} contributed to no round. {listed}{remark}"


def _of_clients(history: History) -> Found:
    """See `Found`. A client that was away or not asked has no reason."""
    parents = {}
    uppers = {}  # by client, the nodes that may collect its updates
    for name, node in history.nodes.items():
        if node.get("samples") and node.get("parent"):
            parents[name] = node["parent"]
            uppers[name] = {node["parent"], *node.get("visits", ())}
    used_together: defaultdict[str, set[str]] = defaultdict(set)  # by client, the kinds of its messages
    used_alone: defaultdict[str, set[str]] = defaultdict(set)
    collecting = {event.node for event in history.events(Unanswered.NAME, RoundAbandoned.NAME)}
    for _, node_name, _, contributed in history.recorded(Contributed):
        used = used_alone
        if contributed.gathered:
            used = used_together
            collecting.add(node_name)
        for peer in contributed.peers:
            if node_name in uppers.get(peer, ()):
                used[peer].add(contributed.kind)
    against: defaultdict[str, list[Event]] = defaultdict(list)
    for event in history.events(*_AGAINST):
        for peer in event.data.get("peers") or [event.data.get("peer")]:
            if event.node in uppers.get(peer, ()):
                against[peer].append(event)
    connected = {joined.event.peer for joined in history.recorded(Joined)}
    losses = {}
    for _, node_name, _, lost in history.recorded(Lost):
        losses[node_name, lost.peer] = lost.reason
    counted = 0
    reasons = {}
    for client, parent in parents.items():
        kinds = used_together[client] if parent in collecting else used_alone[client]
        own_reasons = list(_reasons(history, client, kinds, against[client]))
        if own_reasons:
            reasons[client] = min(own_reasons)
            continue
        if kinds:
            counted += 1
            continue
        if any({client, parent} & set(span.nodes) for span in history.faults()):
            continue
        reason = losses.get((parent, client))
        if client not in connected:
            reasons[client] = Reason(_LAST, "unknown", f"it never connected to {parent}")
        elif parent not in collecting:
            reasons[client] = Reason(_LAST, "unknown", f"{parent} received no update of it before the run ended")
        elif reason:
            reasons[client] = Reason(_LAST, "fail", f"{parent} lost it ({reason}); see timeouts.lost_after")
    return len(parents), counted, reasons


def _reasons(
    history: History,
    client: str,
    used: set[str],
    events: list[Event],
) -> Iterator[Reason]:
    """The reasons why messages did not count, of each kind of which none counted."""
    counts: Counter[tuple[str, str]] = Counter()
    last: dict[tuple[str, str], Event] = {}
    for event in events:
        kind = str(event.data.get("kind") or "")
        if kind in used or (used and (not kind or event.name == Unreceived.NAME)):
            continue
        if event.name in (Unanswered.NAME, Late.NAME) and _planned(history, client, event):
            continue
        counts[event.name, kind] += 1
        last[event.name, kind] = event
    for (name, kind), number in counts.items():
        yield _reason(history, name, kind, number, last[name, kind])


def _reason(
    history: History,
    name: str,
    kind: str,
    number: int,
    event: Event,
) -> Reason:
    times = text.count(number, "time")
    order = _AGAINST.index(name)
    match name:
        case BadMessage.NAME:
            return Reason(order, "fail", f"refused {times}: {event.data.get('reason')}")
        case NotFinite.NAME:
            return Reason(order, "fail", f"left out {times}: NaN or an infinity in its {kind}")
        case Unreceived.NAME:
            return Reason(order, "fail", f"{event.node} waited for no messages of kind {kind!r}")
        case RoundAbandoned.NAME:
            return Reason(order, "unknown", f"it answered in {text.count(number, 'round')}, and too few others did")
    deadline, automatic = _deadline(history, event)
    words = f"no {kind} by the {'automatic ' if automatic else ''}deadline of {text.duration(deadline)}, {times}"
    return Reason(order, "fail" if automatic else "unknown", words)


def _deadline(history: History, event: Event) -> tuple[float, bool]:
    """The deadline that a late answer missed, and whether it is that of the plan, and automatic."""
    tier = history.nodes[event.node or ""]["tier"]
    planned = float(history.plan["gathering"]["deadlines"].get(tier, 0.0))
    deadline = float(event.data.get("deadline") or planned)
    given = (history.effective.get("gathering") or {}).get("deadline", "auto")
    return deadline, given == "auto" and deadline == planned


def _planned(history: History, client: str, event: Event) -> bool:
    """Whether a fault was active on the client, its links or the node above it while its answer was waited for."""
    deadline, _ = _deadline(history, event)
    return any(
        span.start is not None
        and {client, event.node} & set(span.nodes)
        and span.start <= event.t
        and (span.end is None or span.end >= event.t - deadline)
        for span in history.faults()
    )


def _of_population(history: History) -> Found | None:
    """See `Found`; None if no client was selected. Only clients with refused answers have reasons."""
    all_parts = parts(history)
    if not all_parts:
        return None
    clients = int(history.plan[POPULATION]["size"])
    selected = {part.client for part in all_parts}
    counted = {part.client for part in all_parts if part.outcome == "counted"}
    refused: defaultdict[str, list[Event]] = defaultdict(list)
    for event in history.events(BadMessage.NAME, NotFinite.NAME):
        refused[str(event.data.get("peer"))].append(event)
    reasons = {
        client: min(_reasons(history, client, set(), events))
        for client, events in refused.items()
        if client in selected - counted
    }
    if not counted and not reasons:
        outcomes = Counter(part.outcome for part in all_parts)
        tally = text.some(f"{number:,} {outcome}" for outcome, number in outcomes.items())
        reasons["all that were selected"] = Reason(_LAST, "unknown", f"no answer counted: {tally}")
    return clients, len(counted), reasons


def _never_received(history: History) -> Iterator[str]:
    """Messages that arrived of a kind that no role ever received, in words."""
    senders: defaultdict[tuple[Any, str], set[str]] = defaultdict(set)
    for _, node, _, unreceived in history.recorded(Unreceived):
        senders[node, unreceived.kind].update(unreceived.peers)
    for (node, kind), peers in senders.items():
        came = f"from {text.count(len(peers), 'node')}" if len(peers) > 1 else f"from {min(peers)}"
        yield f"messages of kind {kind!r} arrived at {node} {came} and were never received"
