"""Events of nodes: most are reported by the node, some are recorded by the orchestrator for it.

A node may run any program, so a field may be missing. `orchestrator.run.nodes.messages` checks the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.record.events.base import RecordedEvent

LINES_A_SECOND = 500.0  # that the record takes of each node's programs
LINES_AT_ONCE = 10_000.0


@dataclass(frozen=True)
class RoundReached(RecordedEvent):
    """A round of a coordinator starts or ends (``phase``). At its end: how often it gathered messages, and how many of
    these ``gatherings`` were ``abandoned``."""

    NAME = "round"

    phase: str | None = None
    gatherings: int | None = None
    abandoned: int | None = None


@dataclass(frozen=True)
class RoundAbandoned(RecordedEvent):
    """A coordinator gave up a round for lack of answers. ``peers``: those that did answer."""

    NAME = "round_abandoned"

    peers: Sequence[str] | None = None


@dataclass(frozen=True)
class Resumed(RecordedEvent):
    """A node continues after the round of the event, from a checkpoint."""

    NAME = "resumed"


@dataclass(frozen=True)
class Selected(RecordedEvent):
    """The nodes that a coordinator selected for a round."""

    NAME = "selected"

    nodes: Sequence[str]


@dataclass(frozen=True)
class Contributed(RecordedEvent):
    """The ``peers`` with messages of a ``kind`` that were used. ``gathered``: the node waited for them together."""

    NAME = "contributed"

    kind: str
    gathered: bool
    peers: Sequence[str]


@dataclass(frozen=True)
class Unanswered(RecordedEvent):
    """The ``peers`` without an answer of this ``kind`` by the ``deadline`` in seconds."""

    NAME = "unanswered"

    kind: str
    peers: Sequence[str]
    deadline: float


@dataclass(frozen=True)
class Unreceived(RecordedEvent):
    """Messages of a ``kind`` arrived from ``peers``, and the node never received one."""

    NAME = "unreceived"

    kind: str
    peers: Sequence[str]


@dataclass(frozen=True)
class Joined(RecordedEvent):
    """A peer has connected."""

    NAME = "joined"

    peer: str


@dataclass(frozen=True)
class Lost(RecordedEvent):
    """The connection to a peer is lost."""

    NAME = "lost"

    peer: str
    reason: str


@dataclass(frozen=True)
class Left(RecordedEvent):
    """A peer has left in order."""

    NAME = "left"

    peer: str


@dataclass(frozen=True)
class Refused(RecordedEvent):
    """A peer was refused."""

    NAME = "refused"

    peer: str
    reason: str


@dataclass(frozen=True)
class Late(RecordedEvent):
    """A message arrived after its deadline, and is not used."""

    NAME = "late"

    peer: str
    kind: str


@dataclass(frozen=True)
class Superseded(RecordedEvent):
    """A message was replaced by a later one before it was used."""

    NAME = "superseded"

    peer: str
    kind: str


@dataclass(frozen=True)
class Undelivered(RecordedEvent):
    """Messages to a peer that were not delivered."""

    NAME = "undelivered"

    peer: str
    messages: int


@dataclass(frozen=True)
class BadMessage(RecordedEvent):
    """A node refused a message of a peer; or the orchestrator refused messages of the node, ``count`` so far, and
    ``reason`` is that of the last one."""

    NAME = "bad_message"

    peer: str | None = None
    reason: str | None = None
    kind: str | None = None
    count: int | None = None

    def to_json(self) -> dict[str, Any]:
        data = super().to_json()
        return {key: value for key, value in data.items() if value is not None}


@dataclass(frozen=True)
class NotFinite(RecordedEvent):
    """A value was NaN or an infinity: ``what``, ``at`` a line of a plug-in. ``peer``: its message was left out."""

    NAME = "not_finite"

    what: str
    at: str | None = None
    peer: str | None = None
    kind: str | None = None
    scope: str | None = None


@dataclass(frozen=True)
class Overrun(RecordedEvent):
    """A step took longer (``taken``, s) than the node's hardware needs (``asked``, s)."""

    NAME = "overrun"

    asked: float | None = None
    taken: float | None = None


@dataclass(frozen=True)
class Frozen(RecordedEvent):
    """A node's process did not run for some seconds."""

    NAME = "frozen"

    seconds: float


@dataclass(frozen=True)
class PeerShares(RecordedEvent):
    """The ``shares`` of other edges' models in an edge's own."""

    NAME = "peers"

    shares: Mapping[str, float] | None = None
    queue: Mapping[str, Sequence[float]] | None = None


@dataclass(frozen=True)
class Inversion(RecordedEvent):
    """What an attack reconstructed from a client's embeddings; see `orchestrator.results.evaluation.inversion`."""

    NAME = "inversion"


@dataclass(frozen=True, kw_only=True)
class ClientPart(RecordedEvent):
    """A client of a population took part. ``outcome``: how it ended. ``began``: in seconds of training.
    ``staleness``: how many rounds old its answer was, of an asynchronous algorithm; None of others."""

    NAME = "client"

    client: str
    outcome: str | None
    began: float
    seconds: float
    speed: float | None = None
    hardware: str | None = None
    link: str
    samples: int | None = None
    loss: float | None = None
    sent: int | None = None
    received: int | None = None
    staleness: int | None = None


@dataclass(frozen=True)
class ProgramEnded(RecordedEvent):
    """A program has ended before the run was stopped. ``code``: its exit code, or the negative number of a
    signal."""

    NAME = "program ended"

    program: str
    code: int


@dataclass(frozen=True, kw_only=True)
class KilledAtEnd(RecordedEvent):
    """Programs of a node did not end within their ``grace`` in seconds after SIGTERM."""

    NAME = "killed at the end"

    programs: Sequence[str] = ()
    grace: float


@dataclass(frozen=True)
class Connections(RecordedEvent):
    """The TCP connections of a node with programs when its run was ended by its time or by a failure, before the node
    was stopped: see `orchestrator.host.kernel.connections`."""

    NAME = "connections"

    connections: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class LinesDropped(RecordedEvent):
    """Lines of a node's programs that are not in the record: they printed more than `LINES_A_SECOND`."""

    NAME = "lines dropped"

    lines: int


@dataclass(frozen=True)
class OutOfMemory(RecordedEvent):
    """A node, or its host, had no memory left. ``limit``: of the node in bytes; None: it has none."""

    NAME = "out of memory"

    limit: int | None = None


@dataclass(frozen=True)
class NodeFailed(RecordedEvent):
    """A node has failed."""

    NAME = "failed"

    error: str


RESERVED = (ProgramEnded.NAME, KilledAtEnd.NAME, LinesDropped.NAME, Connections.NAME)
"""Events of nodes with programs that no program can print, since checks trust them."""
