"""What an algorithm sees. One subclass of `Role` per tier, whose ``run`` reads like the paper's pseudocode:

    class Cloud(Role):
        async def run(self):
            w = self.restored.tensors if self.restored else self.learner.initial()
            async for t in self.rounds():
                await self.publish(self.children, "model", w, round=t)
                updates = await self.gather("update", self.children, round=t)
                if updates:
                    w = weighted_mean([u.tensors for u in updates], [u.fields["samples"] for u in updates])
                await self.checkpoint(t, w)

    class Client(Role):
        async def run(self):
            while True:
                m = await self.receive("model", sender=self.parent)
                result = await self.compute(self.learner.train, m.tensors, self.params, m.round)
                await self.send(self.parent, "update", result.weights, round=m.round, samples=self.learner.samples)

A role knows time only through asyncio, does heavy work only through ``compute``, and draws only from ``rng``: then it
runs unchanged on emulated links and in simulations. Every wait ends with `Finished` when the run is over for the node.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from node.assignment import Assignment, derive_seed
from node.errors import Finished, NodeError
from node.messaging.control import Reporter
from node.messaging.exchange import FINISH, Exchange
from node.messaging.finite import not_finite, unusual
from node.messaging.numbering import EdgeRounds
from node.messaging.packet import RUNTIME_KINDS
from node.messaging.transport import Transport
from node.messaging.wire import Message, Tensors
from node.runtime import checkpoint as checkpoints
from node.runtime.checkpoint import Checkpoint
from node.runtime.compute import Compute, Mode

_LAST_WORDS = 0.5  # s for what is queued when a node is told to stop

RESERVED_KINDS = RUNTIME_KINDS | {FINISH}


class Role:
    """One node's part in an algorithm.

    ``parent``, ``children`` and ``neighbours`` are names of peers; ``gathering`` the scenario's rule of how to wait;
    ``params`` the algorithm's parameters; ``learner`` the node's model and data, ``model`` that model's name in the
    catalogue and ``model_params`` its parameters; ``rng`` a generator seeded from (scenario seed, node); ``restored``
    the last checkpoint of a coordinator that was restarted, else None.
    """

    def __init__(
        self,
        assignment: Assignment,
        transport: Transport,
        compute: Compute,
        reporter: Reporter,
        *,
        params: Any = None,
        learner: Any = None,
        restored: Checkpoint | None = None,
    ) -> None:
        self.name = assignment.node
        self.tier = assignment.tier
        self.parent: str | None = next(iter(assignment.related("parent")), None)
        self.children = assignment.related("child")
        self.neighbours = assignment.related("neighbour")
        self.gathering = assignment.gathering
        self.params = params
        self.learner = learner
        self.model = assignment.model
        self.model_params = assignment.model_params
        self.restored = restored
        self.rng = np.random.default_rng(derive_seed(assignment.seed, assignment.node, "role"))
        self.ended_by = "rounds"  # or "accuracy", "stopped"
        self._assignment = assignment
        self._transport = transport
        self._compute = compute
        self._reporter = reporter
        self._finished = False
        self._keeping: asyncio.Future[None] | None = None  # the checkpoint that is being written
        self.leaving = False
        expected = [peer.name for peer in assignment.peers if not peer.late]
        self._exchange = Exchange(
            transport, expected, self.parent, assignment.gathering, reporter, EdgeRounds.of(assignment, params)
        )

    async def run(self) -> None:
        """The algorithm's part; each tier's class writes it."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it does")

    # For algorithms

    async def rounds(self) -> AsyncIterator[int]:
        """Number the rounds of a coordinator: from the one after the checkpoint, else 1, to the scenario's last.

        Ends early when the reported global accuracy reaches the scenario's, or after ``finish``.
        """
        first = self.restored.round + 1 if self.restored else 1
        for t in range(first, self._assignment.stop.rounds + 1):
            if self._finished:
                return
            with self.in_round(t):
                yield t

    @contextlib.contextmanager
    def in_round(self, t: int, **numbers: int) -> Iterator[None]:
        """Mark in the record when a round of this node begins and ends, and how many of its gatherings came to nothing;
        ``rounds`` does so for its own. ``edge_round=r`` marks the edge round r, which belongs to round t."""
        exchange = self._exchange
        gatherings, abandoned = exchange.gatherings, exchange.abandoned
        self._reporter.event("round", round=t, **numbers, phase="start")
        yield
        gatherings, abandoned = exchange.gatherings - gatherings, exchange.abandoned - abandoned
        self._reporter.event("round", round=t, **numbers, phase="end", gatherings=gatherings, abandoned=abandoned)

    async def send(
        self,
        to: str | Iterable[str],
        kind: str,
        tensors: Tensors | None = None,
        *,
        round: int | None = None,
        **fields: Any,
    ) -> None:
        """Send a message to one or more peers; ``fields`` are small values that msgpack knows.

        The tensors are copied at once. What cannot be delivered because the peer went away is dropped; use ``publish``
        for what a peer needs when it comes back.
        """
        await self._exchange.send([to] if isinstance(to, str) else to, self._message(kind, tensors, round, fields))

    async def publish(
        self,
        to: str | Iterable[str],
        kind: str,
        tensors: Tensors | None = None,
        *,
        round: int | None = None,
        **fields: Any,
    ) -> None:
        """Send, and keep as the standing message of its kind, which is sent again to each of these peers that comes
        later or comes back, until the next ``publish`` of the kind."""
        await self._exchange.publish([to] if isinstance(to, str) else to, self._message(kind, tensors, round, fields))

    async def publish_each(
        self, kind: str, tensors: Mapping[str, Tensors | None], *, round: int | None = None, **fields: Any
    ) -> None:
        """``publish`` where each peer, a key of ``tensors``, gets tensors of its own."""
        messages = {peer: self._message(kind, own, round, fields) for peer, own in tensors.items()}
        await self._exchange.publish_each(kind, messages)

    async def gather(
        self, kind: str, peers: Iterable[str], *, round: int, quorum: float | None = None, deadline: float | None = None
    ) -> list[Message]:
        """Wait for a message of each peer that is there; sorted by sender.

        Returns at the scenario's deadline at the latest, with what there is if that makes the quorum, else with nothing
        (event round_abandoned). Late messages are treated as the scenario says (event late); messages with tensors that
        are not finite are left out (event not_finite). A ``quorum`` (a share; 0: whoever answers) or a ``deadline`` in
        seconds (infinity: none) given here takes the place of the scenario's.
        """
        return await self._exchange.gather(kind, peers, round, quorum, deadline)

    def abandon(self, messages: Sequence[Message]) -> None:
        """Say that nothing could be made of the messages that were gathered (event round_abandoned)."""
        first = messages[0]
        self._exchange.abandon(first.kind, first.round, first.sender, have=0, need=1)

    async def receive(self, *kinds: str, sender: str | None = None) -> Message:
        """The next message of these kinds, from anybody or only from the ``sender``, as what a parent says must be. Of
        several from one sender only the newest is given (event superseded). Messages with tensors that are not finite
        are left out (event not_finite), but for the parent's."""
        return await self._exchange.receive(kinds, sender)

    @property
    def present(self) -> frozenset[str]:
        """The peers that are there now."""
        return frozenset(self._exchange.membership.present)

    @contextlib.asynccontextmanager
    async def beside(self, service: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
        """Run ``service`` beside the body, until the body ends; what it raises is raised where the body waits."""
        task = asyncio.create_task(self._exchange.guard(service))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            service.close()  # which has not begun where the body never waited

    def seed(self, *purpose: str) -> int:
        """A seed of this node's own for one purpose."""
        return derive_seed(self._assignment.seed, self.name, *purpose)

    def shared_seed(self, purpose: str) -> int:
        """A seed for one purpose that is the same at every node of the run."""
        return derive_seed(self._assignment.seed, purpose)

    def note(self, event: str, *, round: int | None = None, **fields: Any) -> None:
        """Put an event of the algorithm's own into the record; ``fields`` are small values that msgpack knows."""
        self._reporter.event(event, round=round, **fields)

    async def compute(self, fn: Callable[..., Any], *args: Any, samples: int = 0, mode: Mode = "train") -> Any:
        """Run ``fn(*args)`` beside the node's communication, as long as the node's hardware would take for it.

        ``samples``: how many samples it processes, by which a simulation models its time.
        """
        return await self._exchange.unless_stopped(self._compute.run(fn, args, samples, mode))

    def report(self, *, round: int | None = None, **values: float | str) -> None:
        """Put values into the record. ``scope`` says of what: "global", "own" or "train"; the scenario's accuracy to
        stop at is compared with the global ``accuracy``. What is not finite is told (event not_finite)."""
        self._reporter.metric(round, values)
        for name in unusual(values):
            self._reporter.event("not_finite", round=round, what=name, scope=values.get("scope", "train"))
        target = self._assignment.stop.accuracy
        if target is not None and values.get("scope") == "global" and float(values.get("accuracy", -1)) >= target:
            self._finished = True
            self.ended_by = "accuracy"

    async def checkpoint(self, round: int, tensors: Tensors, **fields: Any) -> None:
        """Keep the state after ``round``, from which a restarted node goes on (``restored``).

        A disk takes as long as a small round. So it is written while the role goes on, and is there before the next.
        """
        if self._assignment.checkpoint_directory:
            path = checkpoints.checkpoint_path(self._assignment.checkpoint_directory, self.name)
            pieces = checkpoints.packed(self.name, round, tensors, fields)
            await self._kept()
            self._keeping = asyncio.ensure_future(self._compute.aside(checkpoints.write, path, pieces))

    async def _kept(self) -> None:
        """Wait until the disk has the last checkpoint."""
        if self._keeping is not None:
            await self._keeping

    async def finish(self) -> None:
        """End the run for this node's children, and ``rounds``. Called for every role whose ``run`` has ended."""
        self._finished = True
        if self.children:
            await self._exchange.publish(self.children, Message(FINISH, self.name))

    # For whoever runs roles

    async def perform(self) -> None:
        """Connect, wait up to ``lost_after`` s for the peers, run, and tell the children that it is over."""
        patience = self._assignment.timeouts.lost_after
        flush: float | None = None  # who fails goes without a word, and is missed
        listening = asyncio.create_task(self._exchange.listen())
        try:
            await self._transport.start()
            if self.restored is not None:
                self._reporter.event("resumed", round=self.restored.round)
            with contextlib.suppress(Finished):
                await self._exchange.wait_for_peers(patience)
                await self.run()
            await self._kept()
            if not self.leaving:
                await self.finish()
            flush = _LAST_WORDS if self.ended_by == "stopped" else patience
        finally:
            listening.cancel()
            await self._transport.close(flush)

    @property
    def stopped(self) -> bool:
        """Whether the run is over for this node before its role ended by itself."""
        return self._exchange.stopped

    def stop(self, *, leaving: bool = False) -> None:
        """Have every wait of the role raise `Finished`. A node that is ``leaving`` does not end its children's run."""
        self.ended_by = "stopped"
        self.leaving = leaving
        self._exchange.stop()

    def _message(self, kind: str, tensors: Tensors | None, round: int | None, fields: Mapping[str, Any]) -> Message:
        if kind in RESERVED_KINDS:
            raise NodeError(f"{self.name}: messages of kind {kind!r} are the runtime's own; name yours differently")
        message = Message(kind, self.name, round, dict(fields), dict(tensors or {}))
        if (what := not_finite(message.tensors)) is not None:
            self._reporter.event("not_finite", round=round, what=what, kind=kind)
        return message
