"""What a fault of the suite did to a run, from its record: who noticed, which work counted, what was lost.

Programs report messages and work with `edgebed.testing.observer`; edgebed's own nodes report them anyhow. All times are
in seconds from the start of the fault, unless a name says otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.limits.faults import MAY_BEGIN
from orchestrator.record.events.nodes import Lost
from orchestrator.record.rows import COMPLETE, Event, FaultSpan
from orchestrator.results.checks.programs import asked_to_end, ended_programs
from orchestrator.results.history import History
from orchestrator.results.traffic.volumes import arrivals, bytes_by_device

SENT = "message sent"
RECEIVED = "message received"
PEER_LOST = "peer lost"
TRAINING_STARTED = "training started"
"""The events of programs, as `edgebed.testing.observer` reports them."""
LAST = 5.0  # s at the end of a run: messages sent then may still be under way
VALUE = "value"
"""The metric with the first weight of the model after a round. Client i adds i + 1 to it in each round."""
Closing = tuple[float | None, str | None]
"""When a round ended, and which work it counted."""
UPDATE = "update"
MODEL = "model"
"""The messages of edgebed's own nodes: a client's work, and what it starts from."""
BEAT = 1.0  # s by which the time of a message may be late
SAME = 0.01  # of a mean of whole numbers


@dataclass(frozen=True)
class Direction:
    """The messages from one side to the other. ``sent``: from the start of the fault on. ``lost`` of them never
    arrived, ``twice`` arrived more than once. ``back``: seconds from the end of the fault (its start, if it lasts
    or takes no time) until a message arrived that was sent after it; None: never."""

    sent: int
    lost: int
    twice: int
    back: float | None


@dataclass(frozen=True)
class Effects:
    """What happened in one run. ``began``: whether the fault did. ``noticed``: by node, when it first reported the loss
    of a peer. ``up`` and ``down``: the messages of the client and to it; None without messages. ``closed``: when the
    round of the fault ended, and ``counted``, which clients it counted: "all", "healthy only", "faulty only", or their
    sum. ``trains_again``: when the client first began to train again. ``finished``: when all rounds were done; None if
    they were not in the ``watched`` seconds. ``failed``: when the run failed, for example because the program that
    ends it ended with another exit code than 0. ``exits``: by program, how it ended before the run. ``bytes_up`` and
    ``bytes_down``: per minute of training, of the client."""

    began: bool
    watched: float
    noticed: Mapping[str, float] = field(default_factory=dict)
    up: Direction | None = None
    down: Direction | None = None
    has_rounds: bool = False
    closed: float | None = None
    counted: str | None = None
    trains_again: float | None = None
    finished: float | None = None
    failed: float | None = None
    exits: Mapping[str, str] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0


def effects(history: History, client: str, server: str) -> Effects:
    """The effects of the fault of a run; of a run without a fault, what came after the time at which it might have
    started."""
    fault = _fault(history)
    began = history.training_began or 0.0
    ended = asked_to_end(history)
    ready = [event.t for event in history.events(MAY_BEGIN)]
    start: float | None = min(ready, default=began)
    over = min(ready, default=began)
    if fault is not None:
        start = fault.start
        over = fault.end if fault.end is not None else (fault.start or 0.0)
    if start is None:
        return Effects(began=False, watched=ended - began)
    sent = [event for event in history.events(SENT) if event.t >= start]
    up = down = None
    if sent:
        up = _direction(history, client, sent, over, ended)
        down = _direction(history, server, sent, over, ended)
    has_rounds = history.rounds_planned is not None or bool(history.rounds())
    closed = counted = None
    if has_rounds and fault is not None:
        closed, counted = _round_of(history, start, client, server)
    outcome = history.outcome
    finished = failed = None
    if has_rounds and outcome is not None:
        if outcome.ended == "failed":
            failed = _since(start, outcome.t)
        elif outcome.ended in COMPLETE and outcome.ended != "after":
            finished = _since(start, ended)
    return Effects(
        began=True,
        watched=round(ended - start, 1),
        noticed=_noticed(history, start),
        up=up,
        down=down,
        has_rounds=has_rounds,
        closed=closed,
        counted=counted,
        trains_again=_trains_again(history, start, client, server),
        finished=finished,
        failed=failed,
        exits=_exits(history),
        bytes_up=_bytes_a_minute(history, client, upward=True),
        bytes_down=_bytes_a_minute(history, client, upward=False),
    )


def _fault(history: History) -> FaultSpan | None:
    faults = history.faults()
    return faults[0] if faults else None


def _since(start: float, t: float) -> float:
    return round(t - start, 1)


def _direction(
    history: History,
    sender: str,
    sent: Sequence[Event],
    over: float,
    ended: float,
) -> Direction:
    """The messages that a node sent after the start of the fault."""
    arrivals: Counter[str] = Counter()
    first_arrival: dict[str, float] = {}
    for event in history.events(RECEIVED):
        if event.node == sender:
            continue
        number = event.data["number"]
        arrivals[number] += 1
        first_arrival.setdefault(number, event.t)
    own = [event for event in sent if event.node == sender]
    settled = [event.data["number"] for event in own if event.t < ended - LAST]
    back = None
    for event in own:
        arrival = first_arrival.get(event.data["number"])
        if event.t >= over and arrival is not None:
            seconds = _since(over, arrival)
            back = seconds if back is None else min(back, seconds)
    return Direction(
        sent=len(own),
        lost=sum(1 for number in settled if arrivals[number] == 0),
        twice=sum(1 for number in settled if arrivals[number] > 1),
        back=back,
    )


def _noticed(history: History, start: float) -> dict[str, float]:
    """By node: when it first reported after the fault that a peer is gone."""
    noticed: dict[str, float] = {}
    for event in history.events(PEER_LOST, Lost.NAME):
        if event.node is not None and event.t >= start:
            noticed.setdefault(event.node, _since(start, event.t))
    return noticed


def _round_of(
    history: History,
    start: float,
    client: str,
    server: str,
) -> Closing:
    """When the round ended in which the fault started, and which work it counted. A restart may have repeated it."""
    led = [round for round in history.rounds() if round.node in history.leaders]
    started = [round for round in led if round.start <= start]
    if not started:
        return None, None
    hit = started[-1]
    ends = [round.end for round in led if round.round == hit.round and round.end is not None]
    if not ends:
        return None, None
    end = ends[0]
    counted = _counted_by_value(history, hit.round, client)
    if counted is None:
        counted = _counted_by_updates(history, server, client, hit.start, end)
    return _since(start, end), counted


def _counted_by_value(history: History, number: int, client: str) -> str | None:
    """From the growth of the first weight in a round: each client adds its index + 1, and the mean is taken."""
    values = {}
    for metric in history.metrics(VALUE, "global"):
        if metric.round is not None:
            values[metric.round] = metric.value
    if number not in values:
        return None
    growth = values[number] - values.get(number - 1, 0.0)
    parts = {name: index + 1 for index, name in enumerate(_devices(history))}
    healthy = [part for name, part in parts.items() if name != client]
    expected = {
        "all": sum(parts.values()) / len(parts),
        "healthy only": sum(healthy) / max(1, len(healthy)),
        "faulty only": float(parts.get(client, 0)),
    }
    for words, mean in expected.items():
        if abs(growth - mean) < SAME:
            return words
    return f"a mean of {growth:.2f}"


def _counted_by_updates(
    history: History,
    server: str,
    client: str,
    start: float,
    end: float,
) -> str | None:
    """From the updates that arrived at a node of edgebed in a round."""
    senders = set()
    of_edgebed = False
    for device in _devices(history):
        for arrival in arrivals(history, server, device, UPDATE):
            of_edgebed = True
            if start < arrival - BEAT and arrival <= end + BEAT:
                senders.add(device)
    if not senders:
        return "none" if of_edgebed else None
    if client not in senders:
        return "healthy only"
    return "faulty only" if senders == {client} else "all"


def _devices(history: History) -> list[str]:
    return [name for name, node in history.nodes.items() if node["tier"] == "device"]


def _trains_again(
    history: History,
    start: float,
    client: str,
    server: str,
) -> float | None:
    """When the client first started to train after the start of the fault. Nodes of edgebed start when a model has
    arrived."""
    times = [event.t for event in history.events(TRAINING_STARTED) if event.node == client]
    if not times:
        times = arrivals(history, client, server, MODEL)
    later = [t for t in times if t > start]
    return _since(start, later[0]) if later else None


def _exits(history: History) -> dict[str, str]:
    """How programs ended before the run was over, except those that end it, or were killed by the fault."""
    until = asked_to_end(history)
    exits = {}
    for program in ended_programs(history):
        if program.t < until and not program.expected and program.code != -9:
            exits[program.label] = program.how
    return exits


def _bytes_a_minute(history: History, client: str, *, upward: bool) -> int:
    """The bytes that the client's links delivered from it, or to it, per minute of training."""
    began = history.training_began
    if began is None:
        return 0
    minutes = max(1.0, asked_to_end(history) - began) / 60
    sizes = bytes_by_device(history).get(client, {"sent": 0, "received": 0})
    counted = sizes["sent"] if upward else sizes["received"]
    return round(counted / minutes)
