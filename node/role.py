"""The interface of algorithms. An algorithm has one subclass of `Role` per tier; ``run`` reads like its pseudocode:

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

A role knows time only through asyncio, does heavy work only through ``compute``, and draws only from ``rng``. Therefore
it runs unchanged on emulated links and in simulations. Every wait raises `Finished` when the run is over for the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from node.assignment import Assignment, derive_seed
from node.errors import Finished, NodeError
from node.messaging.control import Reporter
from node.messaging.delivery.packet import RUNTIME_KINDS
from node.messaging.exchange import FINISH, Exchange
from node.messaging.finite import reportable, unsendable, unusual
from node.messaging.numbering import EdgeRounds
from node.messaging.selection import Selector
from node.messaging.transport import Transport
from node.messaging.wire import Message, Tensors, as_arrays, frozen
from node.runtime import checkpoint as checkpoints
from node.runtime.checkpoint import Checkpoint
from node.runtime.compute import Compute, Mode

T = TypeVar("T")

_LAST_WORDS = 0.5  # s to send the queued messages when a node is stopped

RESERVED_KINDS = RUNTIME_KINDS | {FINISH}

CLIENT_REPORTS = "client_reports"
"""The field of a checkpoint with the role's ``client_reports``."""


class Role:
    """One node's part in an algorithm.

    ``parent``, ``children`` and ``neighbours`` are names of peers. ``gathering`` is the scenario's waiting rule.
    ``params`` are the algorithm's parameters. ``learner`` holds the node's model and data, ``model`` is the model's
    name in the catalogue, and ``model_params`` are its parameters. ``device`` is what the node trains on, as torch
    names it (cpu, cuda). ``rng`` is a generator seeded from (scenario seed, node). ``last_round`` is the number of the
    run's last round, if nothing ends it earlier. ``restored`` is the last checkpoint of a restarted node, else None.
    ``client_reports`` has the latest evaluation that each client has sent, by client and test set. Checkpoints keep it.

    ``clients`` is the number of clients below this node. It is that of ``children``, unless clients are nodes only
    while they take part (a population): then ``children`` are those that take part, and ``selector`` selects them.
    ``lasting`` is False for such a client: nothing of it is left after its part but its checkpoint.
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
        parents = assignment.related("parent")
        self.parent: str | None = parents[0] if parents else None
        self.children = assignment.related("child")
        self.neighbours = assignment.related("neighbour")
        self.gathering = assignment.gathering
        self.params = params
        self.learner = learner
        self.model = assignment.model
        self.model_params = assignment.model_params
        self.device = assignment.device
        self.restored = restored
        self.client_reports: dict[str, dict[str, float]] = {}
        if restored is not None:
            reports = restored.fields.get(CLIENT_REPORTS, {})
            self.client_reports.update(reports)
        self.last_round = assignment.stop.rounds
        self.ended_by = "rounds"  # or "accuracy", "target", "stopped"
        self._assignment = assignment
        self._transport = transport
        self._compute = compute
        self._reporter = reporter
        self._finished = False
        self._keeping: asyncio.Future[None] | None = None  # the checkpoint that is being written
        self.leaving = False
        self.selector: Selector | None = None
        self.clients = len(self.children)
        self.lasting = True
        self._round = 0  # of the newest message, or of this node's own round
        self._computed: Counter[tuple[str, int]] = Counter()  # computations, by function and round
        expected = []
        for peer in assignment.peers:
            if not peer.late and not peer.away:
                expected.append(peer.name)
        edge_rounds = EdgeRounds.of(assignment, params)
        self._exchange = Exchange(
            transport,
            expected,
            self.parent,
            assignment.gathering,
            reporter,
            edge_rounds,
        )
        for peer in assignment.peers:
            if peer.away:
                self._exchange.membership.leave(peer.name)

    @cached_property
    def rng(self) -> np.random.Generator:
        """This node's own random generator."""
        seed = self.seed("role")
        return np.random.default_rng(seed)

    async def run(self) -> None:
        """Run the algorithm's part. The class of each tier implements it."""
        raise NotImplementedError(f"{type(self).__name__} does not implement run()")

    # For algorithms

    async def rounds(self) -> AsyncIterator[int]:
        """Yield the round numbers of a coordinator, up to the scenario's last round.

        The first is the round after the checkpoint, or 1 without a checkpoint. The iteration ends early when the
        reported values reach the scenario's target, or after ``finish``.
        """
        first = 1
        if self.restored:
            first = self.restored.round + 1
        last = self._assignment.stop.rounds
        for t in range(first, last + 1):
            if self._finished:
                return
            with self.in_round(t):
                if self.selector is not None:
                    selection = self.selector.begin_round(t)
                    await self._exchange.unless_stopped(selection)
                yield t

    @contextlib.contextmanager
    def in_round(self, t: int, **numbers: int) -> Iterator[None]:
        """Record when a round of this node starts and ends, and how many of its gatherings were abandoned.

        ``rounds`` does this for the rounds it yields. ``edge_round=r`` marks edge round r, which belongs to round t.
        """
        exchange = self._exchange
        self._round = t
        gatherings = exchange.gatherings
        abandoned = exchange.abandoned
        self._reporter.event("round", round=t, **numbers, phase="start")
        yield
        gatherings = exchange.gatherings - gatherings
        abandoned = exchange.abandoned - abandoned
        self._reporter.event(
            "round",
            round=t,
            **numbers,
            phase="end",
            gatherings=gatherings,
            abandoned=abandoned,
        )

    async def send(
        self,
        to: str | Iterable[str] | None,
        kind: str,
        tensors: Tensors | None = None,
        *,
        round: int | None = None,
        owned: bool = False,
        **fields: Any,
    ) -> None:
        """Send a message to one or more peers. ``fields`` are small values of msgpack types.

        The tensors are copied immediately, unless they are those of a received message. With ``owned``, arrays that
        own their memory are not copied either. They become read-only: changing them raises ValueError. A message to a
        peer that went away is dropped. Use ``publish`` for a message that a peer needs when it comes back.
        """
        message = self._message(kind, tensors, round, fields, owned)
        peers = self._peers(to)
        await self._exchange.send(peers, message)

    async def publish(
        self,
        to: str | Iterable[str] | None,
        kind: str,
        tensors: Tensors | None = None,
        *,
        round: int | None = None,
        owned: bool = False,
        **fields: Any,
    ) -> None:
        """Send a message and keep it as the standing message of its kind.

        Each of these peers that joins later or comes back gets it then, until the next ``publish`` of the kind.
        ``owned`` as in ``send``.
        """
        message = self._message(kind, tensors, round, fields, owned)
        peers = self._peers(to)
        await self._exchange.publish(peers, message)

    async def publish_each(
        self,
        kind: str,
        tensors: Mapping[str, Tensors | None],
        *,
        round: int | None = None,
        owned: bool = False,
        **fields: Any,
    ) -> None:
        """Publish different tensors to each peer. The keys of ``tensors`` are the peers. ``owned`` as in ``send``."""
        messages = {}
        for peer, own in tensors.items():
            messages[peer] = self._message(kind, own, round, fields, owned)
        await self._exchange.publish_each(kind, messages)

    def withdraw(self, kind: str) -> None:
        """Drop the standing message of a kind: peers that join from now on do not get it."""
        self._exchange.withdraw(kind)

    async def gather(
        self,
        kind: str,
        peers: Iterable[str],
        *,
        round: int,
        quorum: float | None = None,
        deadline: float | None = None,
    ) -> list[Message]:
        """Wait for a message of each present peer. Return the messages sorted by sender.

        The wait ends at the scenario's deadline at the latest. The messages are returned if they make the quorum, else
        none (event round_abandoned). The scenario says how late messages are treated (event late). Messages with
        tensors that are not finite are left out (event not_finite). ``quorum`` (a fraction; 0: any number of answers)
        and ``deadline`` in seconds (infinity: none) override the scenario's.
        """
        exchange = self._exchange
        if self.selector is None:
            return await exchange.gather(kind, peers, round, quorum, deadline)
        enough = self.selector.enough
        messages = await exchange.gather(kind, peers, round, quorum, deadline, enough)
        self.selector.counted(messages, round)
        return messages

    def abandon(self, messages: Sequence[Message]) -> None:
        """Report that the gathered messages were of no use (event round_abandoned)."""
        first = messages[0]
        self._exchange.abandon(
            first.kind,
            first.round,
            first.sender,
            have=(),
            need=1,
        )

    def refuse(self, message: Message, reason: str) -> None:
        """Report that a message cannot be used (event bad_message). ``reason`` continues "message 'update' …". If none
        of those that were gathered with it is left, the round is abandoned (event round_abandoned)."""
        self._exchange.refuse(message, reason)
        if self.selector is not None:
            self.selector.refused(message.sender)

    async def receive(self, *kinds: str, sender: str | None = None) -> Message:
        """Wait for the next message of these kinds, from any peer or only from ``sender``.

        Name the ``sender`` for a message that only the parent may send. Of several messages from one sender only the
        newest is returned (event superseded). Messages with tensors that are not finite are left out (event
        not_finite), except the parent's: see `left_out`.
        """
        message = await self._exchange.receive(kinds, sender, self.left_out)
        if message.round is not None:
            self._round = message.round
        return message

    def left_out(self, peers: Iterable[str]) -> None:
        """``receive`` left out a message of these peers, since its tensors are not finite. A population's client is
        released. What this raises, ``receive`` raises."""
        if self.selector is not None:
            self.selector.release(peers)

    @property
    def present(self) -> frozenset[str]:
        """The peers that are present now."""
        return frozenset(self._exchange.membership.present)

    @contextlib.asynccontextmanager
    async def beside(self, service: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
        """Run ``service`` concurrently with the body until the body ends. The body's next wait raises its errors."""
        guarded = self._exchange.guard(service)
        task = asyncio.create_task(guarded)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            service.close()  # the service has not started if the body never waited

    def seed(self, *purpose: str) -> int:
        """A seed for one purpose of this node."""
        return derive_seed(self._assignment.seed, self.name, *purpose)

    def shared_seed(self, purpose: str) -> int:
        """A seed for one purpose that is the same at every node of the run."""
        return derive_seed(self._assignment.seed, purpose)

    def note(
        self,
        event: str,
        *,
        round: int | None = None,
        **fields: Any,
    ) -> None:
        """Record an event of the algorithm's own. ``fields`` are small values of msgpack types."""
        taken = {"type", "name"} & fields.keys()
        if taken:
            raise NodeError(f"{self.name}: every event has a {min(taken)!r}: name this field of {event!r} differently")
        self._reporter.event(event, round=round, **fields)

    async def compute(
        self,
        fn: Callable[..., T],
        *args: Any,
        samples: int = 0,
        mode: Mode = "train",
    ) -> T:
        """Run ``fn(*args)`` concurrently with communication. It lasts as long as on the node's hardware.

        ``samples``: the number of samples it processes, from which a simulation models the duration. In the mode
        "other", the numbers that it goes through: n log₂ n of a sort. Global generators of torch, numpy and Python are
        seeded for it, from the function, the round, and the number of its calls in the round.
        """
        if self.learner is not None:
            name = getattr(fn, "__qualname__", type(fn).__name__)
            self._computed[name, self._round] += 1
            call = str(self._computed[name, self._round])
            round = str(self._round)
            fn = self.learner.seeded(fn, name, round, call)
        work = self._compute.run(fn, args, samples, mode)
        return await self._exchange.unless_stopped(work)

    def report(self, *, round: int | None = None, **values: float | str) -> None:
        """Record values. ``scope`` says what was measured: "global", "own" or "train".

        The run stops when a global value reaches the scenario's target. Values that are not finite are
        reported (event not_finite).
        """
        for name, value in values.items():
            values[name] = reportable(name, value)
        self._reporter.metric(round, values)
        for name in unusual(values):
            scope = values.get("scope", "train")
            place = _line_of_plugin()
            self._reporter.event("not_finite", round=round, what=name, scope=scope, **place)
        reached = self._assignment.stop.reached(values)
        if reached is not None:
            self._finished = True
            self.ended_by = reached

    async def checkpoint(self, round: int, tensors: Tensors, **fields: Any) -> None:
        """Save the state after ``round``. A restarted node continues from it (``restored``).

        A disk takes as long as a small round. So the role continues during the write. The write ends before the next
        one starts.
        """
        directory = self._assignment.checkpoint_directory
        if not directory:
            return
        path = checkpoints.checkpoint_path(directory, self.name)
        if self.client_reports:
            fields[CLIENT_REPORTS] = self.client_reports
        pieces = checkpoints.packed(self.name, round, tensors, fields)
        if self._keeping is not None:
            await self._keeping
        writing = self._compute.aside(checkpoints.write, path, pieces)
        self._keeping = asyncio.ensure_future(writing)

    async def finish(self) -> None:
        """End the run for this node's children, and end ``rounds``. Called after the ``run`` of every role."""
        self._finished = True
        if self.children:
            message = Message(FINISH, self.name)
            await self._exchange.publish(self.children, message)

    # For the runtime

    def admit(self, peers: Sequence[str]) -> None:
        """Wait for these clients, which are about to start, in the gatherings that follow."""
        self.children = (*self.children, *peers)
        self._exchange.admit(peers)

    def lose(self, peer: str) -> None:
        """Do not wait for a client that will not come."""
        self._exchange.lose(peer)

    def dismiss(self, peers: Iterable[str]) -> None:
        """Forget clients that have no part in later rounds."""
        gone = frozenset(peers)
        remaining = [child for child in self.children if child not in gone]
        self.children = tuple(remaining)
        self._exchange.dismiss(gone)

    async def perform(self) -> None:
        """Connect, wait up to ``lost_after`` s for the peers, run, and notify the children that the run is over."""
        patience = self._assignment.timeouts.lost_after
        flush: float | None = None  # a node that fails sends no goodbye; its peers lose it
        listening = asyncio.create_task(self._exchange.listen())
        try:
            await self._transport.start()
            if self.restored is not None:
                self._reporter.event("resumed", round=self.restored.round)
            with contextlib.suppress(Finished):
                await self._exchange.wait_for_peers(patience)
                await self.run()
            self._exchange.report_unreceived()
            if self._keeping is not None:
                await self._keeping
            if not self.leaving:
                await self.finish()
            if self.ended_by == "stopped":
                flush = _LAST_WORDS
            else:
                flush = patience
        finally:
            listening.cancel()
            self._exchange.close()
            await self._transport.close(flush)

    @property
    def stopped(self) -> bool:
        """Whether the run is over for this node before its role ended by itself."""
        return self._exchange.stopped

    def stop(self, *, leaving: bool = False) -> None:
        """Make every wait of the role raise `Finished`. A ``leaving`` node does not end its children's run."""
        self.ended_by = "stopped"
        self.leaving = leaving
        self._exchange.stop()

    def _peers(self, to: str | Iterable[str] | None) -> Iterable[str]:
        if to is None:
            raise NodeError(f"{self.name} has no parent that it could send to")
        if isinstance(to, str):
            return [to]
        return to

    def _message(
        self,
        kind: str,
        tensors: Tensors | None,
        round: int | None,
        fields: Mapping[str, Any],
        owned: bool,
    ) -> Message:
        if kind in RESERVED_KINDS:
            raise NodeError(f"{self.name}: messages of kind {kind!r} are the runtime's own; name yours differently")
        problem = unsendable(tensors, round)
        if problem:
            raise NodeError(f"{self.name}: message {kind!r} {problem}")
        arrays = dict(as_arrays(tensors or {}))
        precision = self._assignment.precision
        message = Message(kind, self.name, round, dict(fields), arrays, precision)
        what = message.not_finite
        if what is not None:
            place = _line_of_plugin()
            self._reporter.event("not_finite", round=round, what=what, kind=kind, **place)
        if owned:
            return frozen(message, owned=True)
        return message


def _line_of_plugin() -> dict[str, str]:
    """The line that a plug-in's role executes, as field ``at`` of an event. Empty if the role is of this package."""
    ours, _, _ = __name__.partition(".")
    outermost = Role.perform.__code__
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not outermost:
        module = str(frame.f_globals.get("__name__"))
        package, _, _ = module.partition(".")
        if package != ours:
            file = Path(frame.f_code.co_filename).name
            return {"at": f"{file}:{frame.f_lineno}"}
        frame = frame.f_back
    return {}
