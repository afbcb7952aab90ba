"""The clients of a population under the simulation: they are nodes from their selection to the end of the round.

The node ``population`` stands for all of them. At the begin of each round the cloud's role asks it for clients
(`node.role.Selector`). It sees who is there, selects, and gives each selected client a role, a learner, a link and a
seed of its own. Such a client connects, gets the model, trains and answers like any other node. It ends with the round,
or earlier if it goes away. Only what a client kept in a checkpoint is left of it then.

The record has an event ``client`` for each client and round. Messages and bytes of clients are those of ``population``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from node.assignment import Assignment, Hardware
from node.learning.training import Learner
from node.messaging.association import Direction, Traffic
from node.messaging.memory import FAREWELL, MemoryNetwork, MemoryTransport
from node.messaging.pair import InFlight
from node.messaging.wire import LIMITS, Message
from node.process.main import described, load_role
from node.role import Role
from node.runtime import checkpoint as checkpoints
from node.runtime.checkpoint import Checkpoint, checkpoint_path, load
from orchestrator.drivers.sim.virtual_compute import CostFunction, ModelledCompute, Pool
from orchestrator.drivers.sim.virtual_control import MemoryReporter
from orchestrator.drivers.sim.virtual_fabric import ModelFabric
from orchestrator.errors import RunError
from orchestrator.population.population import Population, client_name
from orchestrator.population.selection import Seen, Uniform, select

EVENT = "client"
COUNTED, SLOW, AWAY, UNUSED = "counted", "slow", "away", "unused"
LOOK = 60.0  # s until the next look, if no client is there
LONGEST_NIGHT = 7 * 24 * 3600.0  # s without any client, after which the run ends
PRESENCE = frozenset({"joined", "lost", "left"})  # events of the cloud that each client would cause in each round
_OWN = PRESENCE | {"round", "resumed"}


@dataclass(eq=False)
class Part:
    """One client's part in a round. Times are in seconds of training; ``arrived``: when the cloud had its answer,
    ``left``: when it went away."""

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


class Crowd:
    """See the module. A `node.role.Selector` for the cloud, and the performer of the node ``population``."""

    leaving = False
    ended_by = "stopped"

    def __init__(
        self,
        population: Population,
        template: Assignment,
        cloud: str,
        fabric: ModelFabric,
        learner_of: Callable[[str], Learner],
        workers: Pool,
        cost: CostFunction,
        params: Any,
    ) -> None:
        """``template``: the assignment of a client but for its name and speed."""
        self.enough = population.selected
        self.seen = Seen(population.size)
        self._population, self._template, self._cloud = population, template, cloud
        self._network, self._fabric, self._learner_of = fabric.network, fabric, learner_of
        self._workers, self._cost, self._params = workers, cost, params
        self._parts: dict[str, Part] = {}
        self._moved: list[Traffic] = []  # of all clients so far
        self._began: float | None = None  # when training began here, on the loop's clock
        self._passed = 0.0  # s of training before that, in a run that is continued
        self._kept = checkpoint_path(template.checkpoint_directory, template.node)
        self._restore(load(self._kept, template.stop.rounds))
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reporter: MemoryReporter | None = None
        self._role: Role | None = None
        self._transport: MemoryTransport | None = None

    # The node ``population``

    def report_to(self, reporter: MemoryReporter) -> None:
        self._reporter = reporter

    @property
    def stopped(self) -> bool:
        return self._over.done()

    async def perform(self) -> None:
        """Wait for the end of the run, or for the error of a client, and end the part of all clients."""
        try:
            await asyncio.shield(self._over)
        finally:
            await self._end_round()

    def stop(self, *, leaving: bool = False) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def traffic(self) -> list[dict[str, Any]]:
        """The traffic of all clients with the cloud."""
        return [asdict(row) for row in self._moved]

    # The cloud

    def transport(self, assignment: Assignment) -> MemoryTransport:
        """A transport for the cloud, whose peers are the clients of the round."""
        return _CloudTransport(self._network, assignment, self._answered)

    def serve(self, role: Role, transport: MemoryTransport) -> None:
        """Select the clients of this role of the cloud from now on."""
        self._role, self._transport = role, transport
        role.selector, role.clients = self, self._population.size

    async def convene(self, round: int) -> Sequence[str]:
        """See `node.role.Selector`. If nobody is there, wait."""
        await self._end_round()
        population, began = self._population, self._now()
        self._keep(round - 1)
        there = population.availability.there(began)
        while not there.any():
            if self._now() - began > LONGEST_NIGHT:
                raise RunError(f"no client was there for {LONGEST_NIGHT / 86400:.0f} days: see clients.availability")
            await asyncio.sleep(LOOK)
            there = population.availability.there(self._now())
        self.seen.look(there)
        chosen = select(
            population.selection, population.seed, round, population.asked, there, population.speeds, self.seen
        )
        for client in chosen:
            self._begin(client, round)
        assert self._role is not None
        self._role.admit(list(self._parts))
        return list(self._parts)

    def _keep(self, round: int) -> None:
        """Write down what was seen until after ``round``, for a run that is continued."""
        uniform = isinstance(self._population.selection, Uniform)  # then selection does not depend on it
        arrays = {} if uniform else self.seen.arrays
        fields = {"t": self._now(), "looks": self.seen.looks, "gained": self.seen.gained, "first": self.seen.first}
        checkpoints.write(self._kept, checkpoints.packed(self._template.node, round, arrays, fields))

    def _restore(self, kept: Checkpoint | None) -> None:
        if kept is not None:
            self._passed = float(kept.fields["t"])
            self.seen.looks, self.seen.gained = int(kept.fields["looks"]), list(kept.fields["gained"])
            self.seen.first = list(kept.fields["first"])
            for name, array in kept.tensors.items():
                self.seen.arrays[name][:] = array

    def counted(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if (part := self._parts.get(message.sender)) is not None:
                part.outcome = COUNTED

    # Clients

    def _begin(self, client: int, round: int) -> None:
        population, name, now = self._population, client_name(client), self._now()
        assert self._transport is not None
        link = population.links[int(population.link_numbers[client])]
        self._fabric.admit(name, self._cloud, link.up, link.down, population.seed, round)
        self._transport.admit(name)
        speed = float(population.speeds[client])
        assignment = replace(self._template, node=name, index=client + 1, hardware=Hardware(speed=speed))
        transport = self._network.transport(name, [self._cloud], timeouts=assignment.timeouts)
        part = Part(client, name, round, now, transport)
        role = load_role(assignment)(
            assignment,
            transport,
            ModelledCompute(self._workers, self._cost, speed),
            _ClientReporter(part, self._reporter),
            params=self._params,
            learner=self._learner_of(name),
            restored=load(checkpoint_path(assignment.checkpoint_directory, name), assignment.stop.rounds),
        )
        role.lasting = False
        part.task = asyncio.create_task(role.perform(), name=name)
        part.task.add_done_callback(lambda task: self._ended(name, task))
        until = population.availability.until(client, now)
        if until < float("inf"):
            part.leaving = asyncio.get_running_loop().call_later(until - now, self._leave, part)
        self._parts[name] = part

    def _answered(self, name: str) -> None:
        if (part := self._parts.get(name)) is not None:
            part.arrived = self._now()

    def _leave(self, part: Part) -> None:
        """Let a client go away. The cloud notices it as with any node that vanishes."""
        if part.arrived is not None:
            return
        part.outcome, part.left = AWAY, self._now()
        part.task.cancel()
        assert self._role is not None
        if part.name not in self._role.present:
            self._role.lose(part.name)

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        """An error of a client is one of the model or the algorithm: it ends the run."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and not self._over.done():
            self._over.set_exception(RunError(f"{name}: {described(error)}"))

    async def _end_round(self) -> None:
        parts, self._parts = list(self._parts.values()), {}
        if not parts:
            return
        for part in parts:
            if part.leaving is not None:
                part.leaving.cancel()
            part.task.cancel()
        await asyncio.gather(*(part.task for part in parts), return_exceptions=True)
        names = [part.name for part in parts]
        assert self._role is not None
        assert self._transport is not None
        self._transport.forget(names)
        self._role.dismiss(names)
        outcomes = []
        for part in parts:
            self._fabric.dismiss(part.name, self._cloud)
            outcomes.append(self._conclude(part))
        self.seen.end_round(parts[0].round, outcomes)
        losses = [part.loss for part in parts if part.outcome == COUNTED and part.loss is not None]
        if losses and self._reporter is not None:
            self._reporter.metric(parts[0].round, {"scope": "train", "loss": sum(losses) / len(losses)})

    def _conclude(self, part: Part) -> tuple[int, float, float | None]:
        """Record a client's part. Returns its number, its seconds, and the utility of its answer if it counted."""
        population, client = self._population, part.client
        ended = next((t for t in (part.left, part.arrived) if t is not None), self._now())
        outcome = part.outcome or (SLOW if part.arrived is None else UNUSED)
        moved: Counter[str] = Counter()
        rows = part.transport.traffic()
        for row in rows:
            moved[row.direction] += row.bytes
        self._moved = summed([*self._moved, *rows], self._cloud)
        samples = int(population.sample_counts[client])
        if self._reporter is not None:
            self._reporter.event(
                EVENT,
                round=part.round,
                client=part.name,
                outcome=outcome,
                began=round(part.began, 6),
                seconds=round(ended - part.began, 6),
                speed=round(float(population.speeds[client]), 6),
                hardware=population.hardware_name(client),
                link=population.links[int(population.link_numbers[client])].name,
                samples=samples,
                loss=part.loss,
                sent=moved["sent"],
                received=moved["received"],
            )
        utility = samples * part.loss if outcome == COUNTED and part.loss is not None else None
        return client, ended - part.began, utility

    def _now(self) -> float:
        """Seconds of training."""
        now = asyncio.get_running_loop().time()
        if self._began is None:
            self._began = now
        return self._passed + now - self._began


class _CloudTransport(MemoryTransport):
    """The cloud's transport. It tells when the answer of a client arrives."""

    def __init__(self, network: MemoryNetwork, assignment: Assignment, heard: Callable[[str], None]) -> None:
        super().__init__(network, assignment.node, (), assignment.timeouts, LIMITS)
        network.frozen.discard(assignment.node)
        self._heard = heard

    def arrive(self, peer: str, in_flight: InFlight) -> None:
        if in_flight.message.kind != FAREWELL:
            self._heard(peer)
        super().arrive(peer, in_flight)


class CloudReporter(MemoryReporter):
    """The cloud's side of the control plane. That clients come and go is told by the events of their parts."""

    def event(self, name: str, *, round: int | None = None, **fields: Any) -> None:
        if name not in PRESENCE:
            super().event(name, round=round, **fields)


def summed(rows: Sequence[Traffic], peer: str) -> list[Traffic]:
    """Traffic with any peers as traffic with ``peer``."""
    sums: dict[tuple[str, Direction], tuple[int, int]] = {}
    for row in rows:
        messages, size = sums.get((row.kind, row.direction), (0, 0))
        sums[row.kind, row.direction] = messages + row.messages, size + row.bytes
    return [Traffic(peer, kind, way, *sums[kind, way]) for kind, way in sorted(sums)]


@dataclass(frozen=True)
class _ClientReporter:
    """Keeps the loss of a client's training, and hands on what its algorithm notes."""

    part: Part
    population: MemoryReporter | None

    def event(self, name: str, *, round: int | None = None, **fields: Any) -> None:
        if name not in _OWN and self.population is not None:
            self.population.event(name, round=round, **{"client": self.part.name} | fields)

    def metric(self, round: int | None, values: Mapping[str, Any]) -> None:
        if values.get("scope", "train") == "train" and "loss" in values:
            self.part.loss = float(values["loss"])
