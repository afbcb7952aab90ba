"""A client's part in a round or, of an asynchronous algorithm, from a model to its answer; and what observes it.

The record has an event ``client`` for each part. Messages and bytes of clients are those of the node ``population``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from node.assignment import Assignment
from node.messaging.delivery.association import Direction, Traffic
from node.messaging.delivery.pair import InFlight
from node.messaging.memory import FAREWELL, MemoryNetwork, MemoryTransport
from orchestrator.drivers.sim.virtual_control import MemoryReporter
from orchestrator.population.population import Population
from orchestrator.record.events.nodes import ClientPart

COUNTED = "counted"
SLOW = "slow"
AWAY = "away"
UNUSED = "unused"
UNFINISHED = "unfinished"
PRESENCE = frozenset({"joined", "lost", "left", "contributed"})
"""Events of the cloud that each client would cause in each round."""
_OWN = PRESENCE | {"round", "resumed"}


@dataclass(eq=False)
class Participation:
    """One client's part, from the model of ``round``. Times are in seconds of training; ``arrived``: when the cloud had
    its answer, ``left``: when it went away. ``used``: the round for which its answer counted. ``over``: its place is
    free. ``ended``: it is no node any more."""

    client: int
    name: str
    round: int
    began: float
    transport: MemoryTransport
    task: asyncio.Task[None] = field(init=False)
    leaving: asyncio.TimerHandle | None = None
    arrived: float | None = None
    left: float | None = None
    loss: float | None = None
    outcome: str | None = None
    used: int | None = None
    over: bool = False
    ended: bool = False

    def stop(self) -> None:
        """Stop the client and its timer. Its task still has to be waited for."""
        if self.leaving is not None:
            self.leaving.cancel()
        self.task.cancel()

    def event_fields(self, population: Population, now: float) -> dict[str, Any]:
        """The fields of its event, at the latest ``now``."""
        moved: Counter[str] = Counter()
        for row in self.transport.traffic():
            moved[row.direction] += row.bytes
        speed = float(population.speeds[self.client])
        link_number = int(population.link_numbers[self.client])
        part = ClientPart(
            client=self.name,
            outcome=self.outcome,
            began=round(self.began, 6),
            seconds=round(self.seconds(now), 6),
            speed=round(speed, 6),
            hardware=population.hardware_name(self.client),
            link=population.links[link_number].name,
            samples=int(population.sample_counts[self.client]),
            loss=self.loss,
            sent=moved["sent"],
            received=moved["received"],
            staleness=self.staleness,
        )
        fields = part.to_json()
        if not population.asynchronous:
            del fields["staleness"]
        return fields

    def seconds(self, now: float) -> float:
        """How long it took until it went away or its answer arrived, or has taken until ``now``."""
        end = now
        if self.left is not None:
            end = self.left
        elif self.arrived is not None:
            end = self.arrived
        return end - self.began

    @property
    def staleness(self) -> int | None:
        """The number of rounds that its answer came late; None if it did not count."""
        if self.used is None:
            return None
        return self.used - self.round


Notice = Callable[[str], None]  # with the name of a client


class CloudTransport(MemoryTransport):
    """The cloud's transport. It calls ``answered`` when the answer of a client arrives, and ``lost`` when a client is
    lost or has left."""

    def __init__(
        self,
        network: MemoryNetwork,
        assignment: Assignment,
        answered: Notice,
        lost: Notice,
    ) -> None:
        super().__init__(network, assignment.node, (), assignment.timeouts)
        network.frozen.discard(assignment.node)
        self._answered = answered
        self._lost = lost

    def arrive(self, peer: str, in_flight: InFlight) -> None:
        if in_flight.message.kind == FAREWELL:
            self._lost(peer)
        else:
            self._answered(peer)
        super().arrive(peer, in_flight)

    def meet(self, peer: str, reason: str) -> None:
        if self._states[peer] == "present":  # the two had lost each other, and this node was frozen
            self._lost(peer)
        super().meet(peer, reason)

    def lose(self, peer: str, reason: str) -> None:
        self._lost(peer)
        super().lose(peer, reason)


class CloudReporter(MemoryReporter):
    """The cloud's side of the control plane. The events of their parts report that clients come and go."""

    def event(
        self,
        name: str,
        *,
        round: int | None = None,
        **fields: Any,
    ) -> None:
        if name not in PRESENCE:
            super().event(name, round=round, **fields)


@dataclass(frozen=True)
class ClientReporter:
    """Keeps the loss of a client's training, and passes the events of its algorithm on."""

    part: Participation
    population: MemoryReporter | None

    def event(
        self,
        name: str,
        *,
        round: int | None = None,
        **fields: Any,
    ) -> None:
        if name in _OWN or self.population is None:
            return
        fields = {"client": self.part.name} | fields
        self.population.event(name, round=round, **fields)

    def metric(self, round: int | None, values: Mapping[str, Any]) -> None:
        scope = values.get("scope", "train")
        if scope == "train" and "loss" in values:
            self.part.loss = float(values["loss"])


def summed(rows: Sequence[Traffic], peer: str) -> list[Traffic]:
    """Traffic with any peers as traffic with ``peer``."""
    sums: dict[tuple[str, Direction], tuple[int, int]] = {}
    for row in rows:
        key = (row.kind, row.direction)
        messages, size = sums.get(key, (0, 0))
        sums[key] = (messages + row.messages, size + row.bytes)
    total = []
    for kind, direction in sorted(sums):
        messages, size = sums[kind, direction]
        total.append(Traffic(peer, kind, direction, messages, size))
    return total
