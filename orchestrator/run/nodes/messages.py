"""Checks the messages of nodes (`node.messaging.control`) before the orchestrator uses them, and records them.

A node may run any program, and a faulty program must not end the run. `problem` finds every bad message, so the code
behind it does not check types again.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from numbers import Real
from typing import Any

from node.messaging.control import SHARES
from node.messaging.wire import LAST_ROUND
from orchestrator.record.events import links, run
from orchestrator.record.events import nodes as reports
from orchestrator.record.events.curves import Curves
from orchestrator.record.events.network import NetworkReading
from orchestrator.record.events.overload import Overload
from orchestrator.record.writer import Record

LONGEST_NAME = 200  # characters
LONGEST_TEXT = 10_000
MOST_VALUES = 1000  # in one metric message
DEEPEST = 32  # levels of lists and maps within an event
UNREADABLE = "unreadable"  # type of the message that replaces a message that the control plane could not read

ORCHESTRATORS = frozenset(
    {
        run.Training.NAME,
        run.Continued.NAME,
        run.Gap.NAME,
        run.HostChanged.NAME,
        run.ProcessorUse.NAME,
        run.Injected.NAME,
        run.Checked.NAME,
        Curves.NAME,
        links.Probed.NAME,
        links.LossAudit.NAME,
        links.CrossTraffic.NAME,
        links.ScheduleStep.NAME,
        links.ScheduleFailed.NAME,
        links.ScheduleEnded.NAME,
        Overload.NAME,
        NetworkReading.NAME,
    }
)
"""Events that only the orchestrator may record; readers of the record trust them."""

MOST_SINGLE = 10  # bad messages of one node that are recorded one by one; after that only when their number has doubled

Message = Mapping[str, Any]
Predicate = Callable[[Any], bool]


def _name(value: Any) -> bool:
    return type(value) is str and 0 < len(value) <= LONGEST_NAME


def _names(value: Any) -> bool:
    if not isinstance(value, list | tuple):
        return False
    return all(map(_name, value))


def _text(value: Any) -> bool:
    return type(value) is str


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _exit_code(value: Any) -> bool:
    """An exit code, or a negative number of a signal."""
    return type(value) is int and abs(value) < 2**31


def _seconds(value: Any) -> bool:
    if not _real(value):
        return False
    return bool(0 <= value <= sys.float_info.max)


def _round(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LAST_ROUND


def _number(value: Any) -> bool:
    """A number; NaN and infinities are allowed, because the loss of a diverged model may be one."""
    return _real(value) and _fits(value)


def _fits(value: Any) -> bool:
    """Whether a real number is in the range of floats. NaN and infinities are."""
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _real(value: Any) -> bool:
    """A real number; NumPy numbers are allowed, because simulated nodes send them unconverted."""
    if type(value) in (float, int):
        return True
    return isinstance(value, Real) and not isinstance(value, bool)


def _values(value: Any) -> bool:
    return isinstance(value, dict) and len(value) <= MOST_VALUES


def _shares(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    for peer, share in value.items():
        if not _name(peer) or not _seconds(share):
            return False
    return True


def _queue(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    for peer, numbers in value.items():
        if not _name(peer) or not _four_numbers(numbers):
            return False
    return True


def _four_numbers(value: Any) -> bool:
    if not isinstance(value, list | tuple):
        return False
    return len(value) == 4 and all(map(_number, value))


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _one_of(*words: str) -> Predicate:
    return lambda value: value in words if type(value) is str else False


def _or_none(check: Predicate) -> Predicate:
    return lambda value: value is None or check(value)


_MESSAGES: Mapping[str, Mapping[str, Predicate]] = {
    "register": {"start": _or_none(_count)},
    "beat": {
        "cpu": _seconds,
        "rss": _count,
        "memory_pss": _or_none(_count),
    },
    "event": {
        "name": _name,
        "round": _or_none(_round),
        "edge_round": _or_none(_round),
    },
    "metric": {"round": _or_none(_round), "values": _values},
    "traffic": {},
    "done": {"reason": _one_of("rounds", "accuracy", "target", "stopped")},
    "failed": {"error": _text, "lasting": _or_none(_flag)},
    UNREADABLE: {"reason": _text},
}
_EVENTS: Mapping[str, Mapping[str, Predicate]] = {
    reports.RoundReached.NAME: {
        "round": _round,
        "phase": _one_of("start", "end"),
        "gatherings": _or_none(_count),
        "abandoned": _or_none(_count),
    },
    reports.RoundAbandoned.NAME: {"round": _round, "peers": _or_none(_names)},
    reports.Unanswered.NAME: {
        "kind": _name,
        "peers": _names,
        "deadline": _seconds,
    },
    reports.Contributed.NAME: {
        "kind": _name,
        "gathered": _flag,
        "peers": _names,
    },
    reports.Unreceived.NAME: {"kind": _name, "peers": _names},
    reports.Resumed.NAME: {"round": _round},
    reports.Selected.NAME: {"nodes": _names},
    reports.Joined.NAME: {"peer": _name},
    reports.Lost.NAME: {"peer": _name, "reason": _text},
    reports.Left.NAME: {"peer": _name},
    reports.Refused.NAME: {"peer": _name, "reason": _text},
    reports.Late.NAME: {"peer": _name, "kind": _name},
    reports.Superseded.NAME: {"peer": _name, "kind": _name},
    reports.Undelivered.NAME: {"peer": _name, "messages": _count},
    reports.BadMessage.NAME: {
        "peer": _name,
        "reason": _text,
        "kind": _or_none(_name),
    },
    reports.Overrun.NAME: {"asked": _seconds, "taken": _seconds},
    run.Note.NAME: {"text": _text},
    reports.KilledAtEnd.NAME: {"grace": _seconds},
    reports.LinesDropped.NAME: {"lines": _count},
    reports.ProgramEnded.NAME: {"program": _name, "code": _exit_code},
    reports.Frozen.NAME: {"seconds": _seconds},
    reports.NotFinite.NAME: {"what": _name, "at": _or_none(_text)},
    reports.PeerShares.NAME: {"shares": _shares, "queue": _queue},
}
_COLUMNS = ("type", "name", "round")  # of an event, which are not among its data
_ROW: Mapping[str, Predicate] = {
    "peer": _name,
    "kind": _name,
    "direction": _one_of("sent", "received"),
    "messages": _count,
    "bytes": _count,
}


def problem(message: Message, nodes: Container[str]) -> str | None:
    """Why a message is bad, in words; None if it is good. ``nodes`` are the names of all nodes."""
    kind = message.get("type")
    checks = None
    if type(kind) is str:
        checks = _MESSAGES.get(kind)
    if checks is None:
        return f"there is no message of type {_shown(kind)}"
    if kind == UNREADABLE:
        return f"unreadable: {_cut(message.get('reason'))}"
    wrong = _first_wrong(message, checks, f"a message of type '{kind}'")
    if wrong is not None:
        return wrong
    if kind == "event":
        return _event_problem(message)
    if kind == "metric":
        return _metrics_problem(message["values"])
    if kind == "traffic":
        return _traffic_problem(message.get("peers"), nodes)
    return None


def _event_problem(event: Message) -> str | None:
    name = event["name"]
    if name in ORCHESTRATORS:
        return f"the event '{name}' is the orchestrator's own: name it differently"
    if not all(map(_name, event)):
        return f"the event '{name}' has a field with a name that is not a text of 1 to {LONGEST_NAME} characters"
    flaw = _flaw(event, DEEPEST)
    if flaw:
        return f"the event '{name}' {flaw}"
    checks = _EVENTS.get(name, {})
    return _first_wrong(event, checks, f"the event '{name}'")


def _metrics_problem(values: Mapping[Any, Any]) -> str | None:
    for name, value in values.items():
        wrong = _metric_problem(name, value)
        if wrong:
            return wrong
    return None


def _metric_problem(name: Any, value: Any) -> str | None:
    if not _name(name):
        return f"a metric has the name {_shown(name)}, which is not a text of 1 to {LONGEST_NAME} characters"
    if name == "scope":
        if _name(value):
            return None
        return f"the scope of metrics is {_shown(value)}: write a text, such as global"
    if value is None:
        return None
    if not _number(value):
        return f"the metric '{name}' is {_shown(value)}: write a number"
    if name in SHARES and (value < 0 or value > 1):
        wrong = f"the metric '{name}' is {value:g}, and it is a share from 0 to 1"
        if 1 < value <= 100:
            wrong += f": write {value / 100:g} for {value:g} %"
        return wrong
    return None


def _traffic_problem(rows: Any, nodes: Container[str]) -> str | None:
    if not isinstance(rows, list | tuple):
        return f"a message of type 'traffic' has peers {_shown(rows)}"
    for row in rows:
        if not isinstance(row, dict):
            return f"a row of traffic is {_shown(row)}"
        wrong = _first_wrong(row, _ROW, "a row of traffic")
        if wrong:
            return wrong
        if row["peer"] not in nodes:
            return f"a row of traffic is of the peer {_shown(row['peer'])}, which does not exist"
    return None


def _first_wrong(
    fields: Mapping[str, Any],
    checks: Mapping[str, Predicate],
    what: str,
) -> str | None:
    for name, check in checks.items():
        if check(fields.get(name)):
            continue
        if name not in fields:
            return f"{what} has no {name}"
        return f"{what} has {name} {_shown(fields[name])}"
    return None


def _flaw(value: Any, levels: int) -> str | None:
    """Why a value in an event cannot be recorded and read again, in words; None if it can."""
    if isinstance(value, int) and not _fits(value):
        return f"has {_shown(value)}, which is beyond the range of a float: write it as text"
    if not isinstance(value, (dict, list, tuple)):
        return None
    if levels == 0:
        return f"is nested more than {DEEPEST} levels deep"
    contents: Iterable[Any] = value
    if isinstance(value, dict):
        contents = itertools.chain(value, value.values())
    for content in contents:
        flaw = _flaw(content, levels - 1)
        if flaw:
            return flaw
    return None


def _shown(value: Any) -> str:
    """A value as text for an error message. A large value is described by its type and length."""
    if isinstance(value, str | bytes):
        ellipsis = "…" if len(value) > 40 else ""
        return repr(value[:40]) + ellipsis
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length():,} bits"
    if value is None or isinstance(value, int | float):
        return repr(value)
    kind = type(value).__name__
    if isinstance(value, dict | list | tuple):
        return f"{kind} of {len(value)}"
    return kind


def _cut(value: Any) -> str:
    return str(value)[:LONGEST_NAME]


class MessageRecorder:
    """Puts the messages of ``nodes`` into the record. A bad message becomes an event "bad_message" of its node.
    ``reason`` says why, and ``count`` is the number of bad messages of that node so far."""

    def __init__(
        self,
        nodes: Collection[str],
        record: Record,
        clock: Callable[[], float],
    ) -> None:
        self.bad: Counter[str] = Counter()
        self._reported: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}  # of each node's last bad message
        self._nodes = nodes
        self._record = record
        self._clock = clock

    def take(self, node: str, message: Message) -> bool:
        """Record a message. False if it is bad; the caller must then ignore it."""
        reason = problem(message, self._nodes)
        if reason:
            self._refuse(node, reason)
            return False
        t = self._clock()
        record = self._record
        match message["type"]:
            case "register":
                record.resources(t, node, 0.0, 0)
                record.traffic_from_zero(node)
            case "beat":
                memory = message.get("memory_pss")
                record.resources(t, node, message["cpu"], message["rss"], memory)
            case "event":
                data = {key: value for key, value in message.items() if key not in _COLUMNS}
                record.event(t, node, message["name"], message.get("round"), data)
            case "metric":
                self._record_metrics(t, node, message)
            case "traffic":
                record.traffic(t, node, message["peers"])
            case "failed":
                error = message["error"][:LONGEST_TEXT]
                record.add_event(t, reports.NodeFailed(error), node=node)
        return True

    def _record_metrics(
        self,
        t: float,
        node: str,
        message: Message,
    ) -> None:
        round = message.get("round")
        values = message["values"]
        scope = values.get("scope", "train")
        for name, value in values.items():
            if name != "scope" and value is not None:
                self._record.metric(t, node, round, scope, name, float(value))

    def end(self) -> None:
        """Record the total number of bad messages of each node, if the record does not have it yet."""
        for node, count in self.bad.items():
            if count > self._reported[node]:
                self._report(node)

    def _refuse(self, node: str, reason: str) -> None:
        self.bad[node] += 1
        self._reasons[node] = reason
        count = self.bad[node]
        if count <= MOST_SINGLE or count >= 2 * self._reported[node]:
            self._report(node)

    def _report(self, node: str) -> None:
        t = self._clock()
        count = self.bad[node]
        self._reported[node] = count
        refused = reports.BadMessage(reason=self._reasons[node], count=count)
        self._record.add_event(t, refused, node=node)
