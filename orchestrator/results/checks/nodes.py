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
PACE_VIRTUAL: Assessment = (
    "modelled",
    "computing takes no virtual time, so each step takes the time that its model's cost gives",
)


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
    if history.virtual:
        return PACE_VIRTUAL
    if not overruns:
        return "pass", "every step of every node took the time of its hardware"
    late_seconds = {name: seconds for name, (_, seconds) in overruns.items()}
    node = max(late_seconds, key=late_seconds.__getitem__)
    seconds = late_seconds[node]
    share = text.share(seconds, history.training_ended - began)
    late_steps = sum(steps for steps, _ in overruns.values())
    nodes = text.count(len(overruns), "node")
    steps = f"{text.count(late_steps, 'step')} on {nodes} took longer than their hardware needs"
    allowed = f"at most {LATE_SHARE:.0%} may be"
    worst = f"the latest is {node}, by {text.duration(seconds)} or {share:.1%} of the training ({allowed})"
    if share <= LATE_SHARE:
        return "pass", f"{steps}; {worst}"
    cause = slow_because(history, "so many or so fast nodes")
    remedy = "use fewer or slower nodes, or `--driver sim`: its time is virtual"
    return "fail", f"{steps}; {worst}: {cause}; {remedy}"


def nodes_responded(history: History) -> Assessment:
    """Check that every node answered at the end, except those that a fault had removed."""
    outcome = history.outcome
    if outcome is None:
        return missing(history, "the orchestrator ended before it could ask the nodes")
    excused: set[str] = set()
    for span in history.faults():
        if _takes_away(span, outcome.t):
            excused.update(span.nodes)
    states = history.current_states()
    away = 0
    silent = {}
    for name, row in states.items():
        if row.state != "done" and name in excused:
            away += 1
        elif row.state != "done":
            silent[name] = row.state
    note = f", {away} away as planned" if away else ""
    if history.clients:
        note += f"; one of them stands for {history.clients:,} clients"
    nodes = text.count(len(states), "node")
    if not silent:
        return "pass", f"{len(states) - away} of {nodes} answered at the end{note}"
    for _, killed, _, event in history.recorded(KilledAtEnd):
        if killed in silent:
            silent[killed] = STILL_RAN.format(text.duration(event.grace))
    listed = text.some(f"{name} ({reason})" for name, reason in silent.items())
    return "fail", f"{len(silent)} of {nodes} did not answer at the end: {listed}{note}"


def _takes_away(span: FaultSpan, end: float) -> bool:
    """Whether a fault kept its nodes from answering when the run ended: nodes that had not joined yet, too."""
    if span.start is None:
        return span.action == "join"
    if span.planned.get("program"):
        return False
    if span.action == "leave":
        return True
    lasts = span.end is None or span.end >= end
    return lasts and span.action in ("crash", "power-off", "pause")


def messages_accepted(history: Facts) -> Assessment | None:
    """Check that no message was refused (events ``bad_message`` with a ``count``), and no line of a program dropped;
    None if none was."""
    said = [*_refused_messages(history), *_dropped_lines(history)]
    if not said:
        return None
    return "fail", "; ".join(said)


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
    configured = {}
    for name, node in history.nodes.items():
        if node.get("stack"):
            configured[name] = node["stack"]
    if not configured:
        return None
    if history.simulated:
        return "modelled", "the model of TCP has these settings"
    recorded = history.recorded(StackInForce)
    in_force = [event for _, reporter, _, event in recorded if reporter is None]
    if not in_force:
        return missing(history, "no node with settings of its own was started")
    wrong = []
    for stack in in_force:
        wrong += [f"{stack.node} has {setting}" for setting in stack.refused(configured[stack.node])]
    if wrong:
        return "fail", f"the kernel refused a setting of `stack`: {text.some(dict.fromkeys(wrong))}"
    nodes = {stack.node for stack in in_force}
    return "pass", f"the settings of `stack` are in force at {text.count(len(nodes), 'node')}"
