"""The clients of a population under the simulation: they are nodes only while they take part.

The node ``population`` stands for all of them. The cloud's role asks it for clients
(`node.messaging.selection.Selector`). It finds the available clients, selects, and gives each selected client a role, a
learner, a link and a seed of its own. Such a client connects, gets the model, trains and answers like any other node.
Its part ends with the round, or earlier if it goes away. If the algorithm is asynchronous, it ends when the cloud has
its answer, and another client takes its place. Only what a client kept in a checkpoint is left of it then.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from node.algorithms.registry import Algorithm
from node.assignment import Assignment, Hardware
from node.catalogue.tasks import CLIENTS
from node.learning.training import Learner
from node.messaging.delivery.association import Traffic
from node.messaging.memory import MemoryTransport
from node.messaging.wire import Message
from node.process.main import described, load_role
from node.role import Role
from node.runtime import checkpoint as checkpoints
from node.runtime.checkpoint import Checkpoint, checkpoint_path, load
from orchestrator.drivers.sim.part import (
    AWAY,
    COUNTED,
    SLOW,
    UNFINISHED,
    UNUSED,
    ClientReporter,
    CloudTransport,
    Participation,
    summed,
)
from orchestrator.drivers.sim.virtual_compute import CostFunction, ModelledCompute, Pool
from orchestrator.drivers.sim.virtual_control import MemoryReporter
from orchestrator.drivers.sim.virtual_fabric import ModelFabric
from orchestrator.errors import RunError
from orchestrator.population.population import Population, client_name
from orchestrator.population.selection import ClientHistory, UniformSelection, select
from orchestrator.record.events.nodes import ClientPart
from orchestrator.together import within

LOOK = 60.0  # s until the next look, if too few clients are available
# Arrays of a checkpoint
_CLIENTS_WITH_LOSS = "clients_with_loss"
_LOSSES = "losses"
LONGEST_NIGHT = 7 * 24 * 3600.0  # s without any client, after which the run ends


def _losses_of(parts: Iterable[Participation]) -> dict[int, float]:
    """By client, the losses of the trainings that counted."""
    losses = {}
    for part in parts:
        if part.outcome == COUNTED and part.loss is not None:
            losses[part.client] = part.loss
    return losses


class Crowd:
    """See the module. A `node.messaging.selection.Selector` for the cloud, and the performer of the node
    ``population``."""

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
        algorithms: Mapping[str, Algorithm],
        kept: Checkpoint | None,
    ) -> None:
        """``template``: the assignment of a client but for its name and speed. ``algorithms``: those of the catalogue.
        ``kept``: of a run that is continued."""
        self.enough = population.selected
        self.seen = ClientHistory(population.size)
        self._population = population
        self._template = template
        self._cloud = cloud
        self._network = fabric.network
        self._fabric = fabric
        self._learner_of = learner_of
        self._workers = workers
        self._cost = cost
        self._params = params
        self._algorithms = algorithms
        self._parts: dict[str, Participation] = {}  # that have not been recorded
        self._recorded: list[Participation] = []  # in this round
        self._losses: dict[int, float] = {}  # by client, that of its latest training that counted
        self._round = 0
        self._draws: Counter[int] = Counter()  # selections of each round, of this incarnation of the cloud
        self._changed = asyncio.Event()  # a place may be free
        self._looked: tuple[float, NDArray[np.bool_]] | None = None  # when, and the clients that were available
        self._moved: list[Traffic] = []  # of all clients so far
        self._start: float | None = None  # of the training in this process, on the loop's clock
        self._passed = 0.0  # s of training before that, in a run that is continued
        self._kept = checkpoint_path(template.checkpoint_directory, template.node)
        self._restore(kept)
        loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = loop.create_future()
        self.reporter: MemoryReporter | None = None  # of the node ``population``
        self._role: Role | None = None
        self._transport: MemoryTransport | None = None

    # The node ``population``

    @property
    def stopped(self) -> bool:
        return self._over.done()

    async def perform(self) -> None:
        """Wait for the end of the run, or for the error of a client, and end the part of all clients."""
        try:
            await asyncio.shield(self._over)
        finally:
            self.release(self._parts)
            await self._end_round()

    def stop(self, *, leaving: bool = False) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def traffic(self) -> Sequence[Traffic]:
        """The traffic of all clients with the cloud."""
        return self._moved

    # The cloud

    def transport(self, assignment: Assignment) -> MemoryTransport:
        """A transport for the cloud. Its peers are the clients that take part."""
        return CloudTransport(
            self._network,
            assignment,
            self.answered,
            self.lost,
        )

    def serve(self, role: Role, transport: MemoryTransport) -> None:
        """Select the clients of this role of the cloud from now on. Those of an earlier incarnation are released."""
        self._role = role
        self._transport = transport
        role.selector = self
        role.clients = self._population.size
        self._draws.clear()
        self.release(self._parts)

    async def begin_round(self, round: int) -> None:
        """See `node.messaging.selection.Selector`."""
        by_rounds = not self._population.asynchronous
        if by_rounds:
            self.release(self._parts)
        await self._end_round()
        self._keep(round - 1)
        self._round = round
        if by_rounds:
            count = await self.vacancy()
            self.select(count, round)

    async def vacancy(self) -> int:
        """See `node.messaging.selection.Selector`. RunError if there was none for a week, and no client took part."""
        latest = self._now()  # when a client took part
        while True:
            self._changed.clear()
            await self._end_those_over()
            decided = []
            for part in self._parts.values():
                if part.ended and part.outcome is not None:
                    decided.append(part)
            self._record(decided)
            busy = [part for part in self._parts.values() if not part.over]
            places = 0
            if not self.stopped:
                places = self._population.asked - len(busy)
            free = self._free(self._available())
            candidates = int(np.count_nonzero(free))
            count = min(places, candidates)
            if count > 0:
                return count
            if busy:
                latest = self._now()
            idle = self._now() - latest
            if idle > LONGEST_NIGHT:
                raise RunError(self._nobody())
            patience = LOOK if places > 0 else None
            await within(patience, self._changed.wait())

    def select(self, count: int, round: int) -> Sequence[str]:
        """See `node.messaging.selection.Selector`."""
        population = self._population
        available = self._available()
        draw = self._draws[round]
        self._draws[round] += 1
        self.seen.look(available)
        chosen = select(
            population.selection,
            population.seed,
            round,
            count,
            self._free(available),
            population.speeds,
            self.seen,
            draw,
        )
        for client in chosen:
            self._begin(client, round)
        names = [client_name(client) for client in chosen]
        assert self._role is not None
        self._role.admit(names)
        return names

    def release(self, clients: Iterable[str]) -> None:
        """See `node.messaging.selection.Selector`."""
        for name in clients:
            part = self._parts.get(name)
            if part is not None:
                part.over = True
        self._changed.set()

    def counted(self, messages: Sequence[Message], round: int) -> None:
        """See `node.messaging.selection.Selector`."""
        for message in messages:
            part = self._parts.get(message.sender)
            if part is not None:
                part.outcome = COUNTED
                part.used = round

    def refused(self, client: str) -> None:
        """See `node.messaging.selection.Selector`."""
        part = self._parts.get(client)
        if part is not None and part.outcome == COUNTED:
            part.outcome = None
            part.used = None

    # What the cloud's transport notices

    def answered(self, name: str) -> None:
        """Note that a client's answer has arrived."""
        part = self._parts.get(name)
        if part is not None:
            part.arrived = self._now()

    def lost(self, name: str) -> None:
        """Release a client that went away or fell silent, unless it may come back before the round ends."""
        part = self._parts.get(name)
        if part is None or not self._population.asynchronous:
            return
        if part.arrived is None:
            self._note_away(part)
            self.release([name])

    # Clients

    def _note_away(self, part: Participation) -> None:
        part.outcome = AWAY
        if part.left is None:
            part.left = self._now()

    def _available(self) -> NDArray[np.bool_]:
        """The clients that are available now. Read once for a vacancy and again for its selection, at one time."""
        now = self._now()
        if self._looked is not None:
            time, available = self._looked
            if time == now:
                return available
        available = self._population.availability.there(now)
        self._looked = (now, available)
        return available

    def _free(self, available: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Those of the clients that have no part, nor an answer that may still count."""
        busy = [part.client for part in self._parts.values()]
        free = available.copy()
        free[busy] = False
        return free

    def _nobody(self) -> str:
        days = f"{LONGEST_NIGHT / 86400:.0f} days"
        if self._parts:
            return (
                f"for {days} no client was available except those with {len(self._parts)} answers that wait for more: "
                "see clients.availability, or let fewer answers make a model"
            )
        return f"no client was available for {days}: see clients.availability"

    def _begin(self, client: int, round: int) -> None:
        population = self._population
        name = client_name(client)
        now = self._now()
        assert self._transport is not None
        link_number = int(population.link_numbers[client])
        self._fabric.admit(
            name,
            self._cloud,
            population.links[link_number],
            population.crossings(name),
            population.seed,
            round,
        )
        self._transport.admit(name)
        speed = float(population.speeds[client])
        assignment = replace(
            self._template,
            node=name,
            index=client + 1,
            hardware=Hardware(speed=speed),
        )
        timeouts = assignment.timeouts
        transport = self._network.transport(name, [self._cloud], timeouts=timeouts)
        part = Participation(client, name, round, now, transport)
        role_of = load_role(assignment, self._algorithms)
        checkpoint = checkpoint_path(assignment.checkpoint_directory, name)
        role = role_of(
            assignment,
            transport,
            ModelledCompute(self._workers, self._cost, speed),
            ClientReporter(part, self.reporter),
            params=self._params,
            learner=self._learner_of(name),
            restored=load(checkpoint, assignment.stop.rounds),
        )
        role.lasting = False
        performance = role.perform()
        part.task = asyncio.create_task(performance, name=name)
        part.task.add_done_callback(partial(self._ended, name))
        until = population.availability.until(client, now)
        if until < float("inf"):
            loop = asyncio.get_running_loop()
            stay = until - now
            part.leaving = loop.call_later(stay, self._leave, part)
        self._parts[name] = part

    def _leave(self, part: Participation) -> None:
        """Let a client go away. The cloud notices it as with any node that vanishes."""
        if part.arrived is not None:
            return
        part.outcome = AWAY
        part.left = self._now()
        part.task.cancel()
        assert self._role is not None
        if part.name not in self._role.present:
            self._role.lose(part.name)
            self.lost(part.name)

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        """An error of a client is one of the model or the algorithm: it ends the run."""
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Exception) and not self._over.done():
            failure = RunError(f"{name}: {described(error, self._template.plugins)}")
            self._over.set_exception(failure)

    async def _end(self, parts: Iterable[Participation]) -> None:
        """Let these clients be nodes no longer."""
        ending = [part for part in parts if not part.ended]
        if not ending:
            return
        for part in ending:
            part.stop()
        tasks = [part.task for part in ending]
        await asyncio.gather(*tasks, return_exceptions=True)
        ending = [part for part in ending if not part.ended]  # another call may have ended the same
        names = [part.name for part in ending]
        assert self._role is not None
        assert self._transport is not None
        self._transport.forget(names)
        self._role.dismiss(names)
        for part in ending:
            self._fabric.dismiss(part.name, self._cloud)
            part.ended = True

    async def _end_those_over(self) -> None:
        over = [part for part in self._parts.values() if part.over]
        await self._end(over)

    async def _end_round(self) -> None:
        """End the parts that are over, record them, and note what the cloud has observed of clients in this round."""
        await self._end_those_over()
        ended = [part for part in self._parts.values() if part.ended]
        self._record(ended)
        recorded = self._recorded
        self._recorded = []
        if not recorded:
            return
        now = self._now()
        observations = []
        for part in recorded:
            seconds = part.seconds(now)
            utility = self._utility(part)
            observations.append((part.client, seconds, utility))
        self.seen.end_round(self._round, observations)
        losses = _losses_of(recorded)
        self._losses |= losses
        if losses and self.reporter is not None:
            number = len(self._losses)
            total = sum(self._losses.values())
            mean = total / number
            metric = {"scope": "train", "loss": mean, CLIENTS: number}
            self.reporter.metric(self._round, metric)

    def _record(self, parts: Iterable[Participation]) -> None:
        """Record parts that have ended."""
        late = UNFINISHED if self._population.asynchronous else SLOW
        for part in list(parts):
            if not part.outcome:
                part.outcome = late if part.arrived is None else UNUSED
            del self._parts[part.name]
            self._recorded.append(part)
            traffic = [*self._moved, *part.transport.traffic()]
            self._moved = summed(traffic, self._cloud)
            if self.reporter is not None:
                now = self._now()
                fields = part.event_fields(self._population, now)
                self.reporter.event(ClientPart.NAME, round=part.round, **fields)

    def _utility(self, part: Participation) -> float | None:
        """The utility of its answer, if it counted."""
        if part.outcome != COUNTED or part.loss is None:
            return None
        samples = int(self._population.sample_counts[part.client])
        return samples * part.loss

    def _keep(self, round: int) -> None:
        """Write down what was seen until after ``round``, for a run that is continued."""
        arrays = {}
        selection = self._population.selection
        if not isinstance(selection, UniformSelection):  # which does not depend on it
            arrays = dict(self.seen.arrays)
        clients = list(self._losses)
        losses = list(self._losses.values())
        arrays[_CLIENTS_WITH_LOSS] = np.array(clients, np.int64)
        arrays[_LOSSES] = np.array(losses, np.float64)
        fields = {
            "t": self._now(),
            "looks": self.seen.looks,
            "gained": self.seen.gained,
            "first": self.seen.first,
        }
        node = self._template.node
        packed = checkpoints.packed(node, round, arrays, fields)
        checkpoints.write(self._kept, packed)

    def _restore(self, kept: Checkpoint | None) -> None:
        if kept is None:
            return
        fields = kept.fields
        self._passed = float(fields["t"])
        self.seen.looks = int(fields["looks"])
        self.seen.gained = list(fields["gained"])
        self.seen.first = list(fields["first"])
        arrays = dict(kept.tensors)
        clients = arrays.pop(_CLIENTS_WITH_LOSS).tolist()
        losses = arrays.pop(_LOSSES).tolist()
        for client, loss in zip(clients, losses, strict=True):
            self._losses[client] = loss
        for name, array in arrays.items():
            self.seen.arrays[name][:] = array

    def _now(self) -> float:
        """Seconds of training."""
        now = asyncio.get_running_loop().time()
        if self._start is None:
            self._start = now
        return self._passed + now - self._start
