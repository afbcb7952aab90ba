"""The checks of nodes: their computing, messages and TCP settings, and their answer at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from orchestrator import text
from orchestrator.record.events.nodes import LINES_A_SECOND, LINES_AT_ONCE, BadMessage, KilledAtEnd, LinesDropped
from orchestrator.record.events.run import StackInForce
from orchestrator.record.rows import FaultSpan
from orchestrator.results.checks.links import LATE_SHARE
from orchestrator.results.checks.verdicts import Assessment, missing
from orchestrator.results.facts import Facts
from orchestrator.results.history import History
from orchestrator.results.hosts import slow_because

STILL_RAN = (
    "its program got SIGTERM, still ran {} later and got SIGKILL: let it end on SIGTERM, or give it a longer"
    " `stop_grace`"
)
PACE_MODELLED: Assessment = "modelled", "the sim driver computes how long each step takes: nothing was measured"


def compute_on_time(history: Facts) -> Assessment | None:
    """Check that no node lost time to a host that is slower than its hardware. ``LATE_SHARE`` of the training is
    allowed. None for programs: edgebed does not know their steps."""
    overruns = history.overruns()
    began = history.training_began
    if began is None:
        return missing(history, "the training never started", ("pass", "no node trained"))
    if history.simulated:
        return PACE_MODELLED
    if history.plan.get("programs"):
        return None
    if not overruns:
        return "pass", "every step of every node took the time of its hardware"
    node, (_, seconds) = max(overruns.items(), key=lambda item: item[1][1])
    share = text.share(seconds, history.training_ended - began)
    late = text.count(sum(steps for steps, _ in overruns.values()), "step")
    steps = f"{late} on {text.count(len(overruns), 'node')} took longer than their hardware needs"
    allowed = f"at most {LATE_SHARE:.0%} may be"
    worst = f"the latest is {node}, by {text.duration(seconds)} or {share:.1%} of the training ({allowed})"
    if share <= LATE_SHARE:
        return "pass", f"{steps}; {worst}"
    remedy = "use fewer or slower nodes, or `--driver sim`: its time is virtual"
    return "fail", f"{steps}; {worst}: {slow_because(history, 'so many or so fast nodes')}; {remedy}"


def nodes_responded(history: History) -> Assessment:
    """Check that every node answered at the end, except those that a fault had removed."""
    outcome = history.outcome
    if outcome is None:
        return missing(history, "the orchestrator ended before it could ask the nodes")
    excused = {node for span in history.faults() if _takes_away(span, outcome.t) for node in span.nodes}
    states = history.current_states()
    silent = {name: row.state for name, row in states.items() if row.state != "done" and name not in excused}
    away = sum(1 for name, row in states.items() if row.state != "done" and name in excused)
    note = f", {away} away as planned" if away else ""
    if history.clients:
        note += f"; one of them stands for {history.clients:,} clients"
    if silent:
        killed = {node: event.grace for _, node, _, event in history.recorded(KilledAtEnd)}
        listed = text.some(
            f"{name} ({state if name not in killed else STILL_RAN.format(text.duration(killed[name]))})"
            for name, state in silent.items()
        )
        return "fail", f"{len(silent)} of {text.count(len(states), 'node')} did not answer at the end: {listed}{note}"
    return "pass", f"{len(states) - away} of {text.count(len(states), 'node')} answered at the end{note}"


def _takes_away(span: FaultSpan, end: float) -> bool:
    """Whether a fault kept its nodes from answering when the run ended: nodes that had not joined yet, too."""
    if span.start is None:
        return span.action == "join"
    if span.planned.get("program"):
        return False
    if span.action == "leave":
        return True
    return span.action in ("crash", "power-off", "pause") and (span.end is None or span.end >= end)


def messages_accepted(history: Facts) -> Assessment | None:
    """Check that no message was refused (events ``bad_message`` with a ``count``), and no line of a program dropped;
    None if none was."""
    said = [*_refused_messages(history), *_dropped_lines(history)]
    return ("fail", "; ".join(said)) if said else None


def _refused_messages(history: Facts) -> Iterator[str]:
    last: dict[str, BadMessage] = {}
    for _, node, _, message in history.recorded(BadMessage):
        if node is not None and message.count is not None:  # others are a node's own, about a peer
            last[node] = message
    if last:
        listed = text.some(f"{message.count} of {node}, the last: {message.reason}" for node, message in last.items())
        yield f"messages were refused and are not in the record: {listed}"


def _dropped_lines(history: Facts) -> Iterator[str]:
    dropped: Counter[str] = Counter()
    for _, node, _, event in history.recorded(LinesDropped):
        if node is not None:
            dropped[node] += int(event.lines)
    if dropped:
        listed = text.some(f"{count:,} of {node}" for node, count in dropped.items())
        yield (
            f"lines of programs were dropped and are not in the record: {listed}; it takes {LINES_A_SECOND:g} a second"
            f" from each node, {LINES_AT_ONCE:,.0f} at once: print fewer"
        )


def stack_as_configured(history: Facts) -> Assessment | None:
    """Check that the settings of `stack` were in force in the nodes' namespaces; None without any."""
    configured = {name: node["stack"] for name, node in history.nodes.items() if node.get("stack")}
    if not configured:
        return None
    if history.simulated:
        return "modelled", "the model of TCP has these settings"
    in_force = [event for _, node, _, event in history.recorded(StackInForce) if node is None]
    if not in_force:
        return missing(history, "no node with settings of its own was started")
    wrong = []
    for stack in in_force:
        wrong += [f"{stack.node} has {setting}" for setting in stack.refused(configured[stack.node])]
    if wrong:
        return "fail", f"the kernel refused a setting of `stack`: {text.some(dict.fromkeys(wrong))}"
    return (
        "pass",
        f"the settings of `stack` are in force at {text.count(len({stack.node for stack in in_force}), 'node')}",
    )
