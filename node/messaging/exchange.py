"""The layer between a role and its transport: it handles events, tracks membership, and implements the waits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Literal, TypeVar

from node.assignment import Gathering
from node.errors import Finished
from node.messaging.contributions import Contributions
from node.messaging.control import Reporter
from node.messaging.delivery.association import BadMessage, Event, Joined, Left, Lost, Received, Refused, Undelivered
from node.messaging.gathering import Gather, Mailbox, Remark
from node.messaging.membership import Membership
from node.messaging.numbering import EdgeRounds
from node.messaging.transport import Immediate, Transport
from node.messaging.wire import Message, frozen

FINISH = "finish"  # the kind of the message with which a parent ends the run of its children
TOLD_AT_ONCE, TOLD_A_SECOND = 100, 10  # events of one name and peer; more would cost as much as what they report

T = TypeVar("T")


class Exchange:
    """The messages and waits of one role. ``stop`` or a finish message of the ``parent`` ends waits with `Finished`."""

    def __init__(
        self,
        transport: Transport,
        expected: Iterable[str],
        parent: str | None,
        rule: Gathering,
        reporter: Reporter,
        edge_rounds: EdgeRounds,
    ) -> None:
        self.membership = Membership(expected)
        self._transport = transport
        self._parent = parent
        self._rule = rule
        self._reporter = reporter
        self._edge_rounds = edge_rounds
        self._mailbox = Mailbox(rule.late)
        self._standing: dict[str, dict[str, Message]] = {}  # standing messages by kind and peer
        self._allowances: dict[tuple[str, str], _Allowance] = {}
        self._waiting: list[asyncio.Future[None]] = []  # for news
        self._contributions = Contributions()
        self._attending: list[set[str]] = []  # for each gathering: the peers that have been present all the time
        self._stopped = asyncio.Event()
        self._stopping: asyncio.Future[Literal[True]] | None = None  # waits for it, once for all computations
        self._failure: BaseException | None = None
        self.gatherings = 0  # gatherings that need answers
        self.abandoned = 0  # those of them that were abandoned

    # For the role

    async def send(self, to: Iterable[str], message: Message) -> None:
        await self._transport.send(to, message)

    async def publish(self, to: Iterable[str], message: Message) -> None:
        """Send to the present peers now, and to the others as soon as they join."""
        audience = frozenset(to)
        message = frozen(message)
        self._standing[message.kind] = dict.fromkeys(audience, message)
        await self._transport.send(sorted(audience & self.membership.present), message, replace=True)

    async def publish_each(self, kind: str, messages: Mapping[str, Message]) -> None:
        """Publish a different message of ``kind`` to each peer."""
        messages = {peer: frozen(message) for peer, message in messages.items()}
        self._standing[kind] = dict(messages)
        for peer in sorted(messages.keys() & self.membership.present):
            await self._transport.send([peer], messages[peer], replace=True)

    def withdraw(self, kind: str) -> None:
        """Drop the standing message of ``kind``."""
        self._standing.pop(kind, None)

    async def gather(
        self,
        kind: str,
        peers: Iterable[str],
        round: int,
        quorum: float | None = None,
        deadline: float | None = None,
        enough: int | None = None,
    ) -> list[Message]:
        if quorum is None:
            needed = (self._rule.quorum, self._rule.count)
        else:
            needed = (quorum, None)
        gather = Gather(kind, round, frozenset(peers), *needed, enough)
        self._contributions.want([kind])
        self._report_contributions(gathered=True)
        patience = self._rule.deadline if deadline is None else deadline
        self._report_remarks(self._mailbox.begin(gather))
        membership = self.membership
        attending = set(gather.peers & membership.present)
        self._attending.append(attending)
        try:
            complete = await self._until(lambda: gather.complete(membership.reachable, membership.left), patience)
            if not complete and gather.quorum != 0 and (silent := sorted(gather.missing & attending)):
                numbers = self._edge_rounds.numbers(round, silent[0])
                self._reporter.event("unanswered", **numbers, kind=kind, peers=silent, deadline=patience)
        finally:
            self._attending.remove(attending)
            self._mailbox.end(gather)
        messages = gather.result(membership.left)
        self._contributions.gathered(gather, messages)
        if gather.quorum != 0 and gather.peers:
            self.gatherings += 1
            if not messages:
                need = max(1, gather.need(membership.left))
                self.abandon(kind, round, min(gather.peers), gather.answers, need)
        return messages

    def abandon(
        self,
        kind: str,
        round: int | None,
        peer: str,
        have: Collection[str],
        need: int,
    ) -> None:
        """Report that a gathering of ``peer`` and others, which ``have`` answered, was abandoned. The round goes on
        without it."""
        self.abandoned += 1
        fields: dict[str, Any] = {"kind": kind, "have": len(have), "need": need, "peers": sorted(have)}
        self._reporter.event("round_abandoned", **self._edge_rounds.numbers(round, peer), **fields)

    def refuse(self, message: Message, reason: str) -> None:
        """Report that the role leaves out a message. If nothing is left of its gathering, that is abandoned."""
        fields: dict[str, Any] = {"peer": message.sender, "kind": message.kind}
        numbers = self._edge_rounds.numbers(message.round, message.sender)
        self._reporter.event("bad_message", **numbers, **fields, reason=f"message {message.kind!r} {reason}")
        gathering = self._contributions.refuse(message)
        if gathering is not None:
            self.abandon(*gathering, message.sender, (), 1)

    async def receive(
        self,
        kinds: Collection[str],
        sender: str | None = None,
        left_out: Callable[[Iterable[str]], None] | None = None,
    ) -> Message:
        """``left_out`` is called with the sender of a message that is left out."""
        self._contributions.want(kinds)
        self._report_contributions(gathered=False, kinds=kinds)
        while True:
            message, remarks = self._mailbox.take(kinds, sender)
            self._report_remarks(remarks)
            if message is None or self._stopped.is_set():
                await self._next_news()
            elif message.sender != self._parent and message.not_finite is not None:
                self._report_remarks([("not_finite", message)])
                if left_out is not None:
                    left_out([message.sender])
            else:
                if message.sender != self._parent:
                    self._contributions.received(message)
                return message  # also the parent's with values not finite, or this node would wait for ever

    async def unless_stopped(self, work: Awaitable[T]) -> T:
        """Return the result of ``work``. Raise `Finished` as soon as the run is over."""
        task = asyncio.ensure_future(work)
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((task, self._stopping), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Finished
        finally:
            task.cancel()

    async def guard(self, work: Awaitable[None]) -> None:
        """Do ``work`` concurrently with the role. The role's next wait raises its errors."""
        try:
            await work
        except Finished:
            pass  # the role's own wait raises it, too
        except Exception as error:
            self._fail(error)

    # For the runtime

    def admit(self, peers: Iterable[str]) -> None:
        """Wait for these peers, which have been asked to come, in the gatherings that follow."""
        self.membership.awaited.update(peers)

    def lose(self, peer: str) -> None:
        """Do not wait for a peer that will not come."""
        self._went_away(peer)
        self.membership.lose(peer)
        self._tell_news()

    def dismiss(self, peers: Iterable[str]) -> None:
        """Forget these peers. They have no part in what comes, unless they are admitted again."""
        gone = frozenset(peers)
        for peer in gone:
            self.membership.forget(peer)
        self._contributions.leave(self._mailbox.waiting(gone))
        self._contributions.forget(gone)
        self._mailbox.forget(gone)
        for kind, audience in self._standing.items():
            self._standing[kind] = {peer: message for peer, message in audience.items() if peer not in gone}
        self._allowances = {key: each for key, each in self._allowances.items() if key[1] not in gone}

    async def wait_for_peers(self, patience: float) -> None:
        """Wait until every expected peer was present once, for ``patience`` s at most."""
        await self._until(lambda: self.membership.complete, patience)

    def stop(self) -> None:
        self._stopped.set()
        self._tell_news()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def report_unreceived(self) -> None:
        """Report whose messages counted at last, messages of kinds that the role never waited for, and events that were
        only counted. The role has ended."""
        for gathered in (True, False):
            self._report_contributions(gathered)
        self._contributions.leave(self._mailbox.waiting())
        for kind, peers in self._contributions.unreceived().items():
            self._reporter.event("unreceived", kind=kind, peers=peers)
        for (name, peer), allowance in self._allowances.items():
            if allowance.untold:
                self._report_untold(name, peer, allowance.untold)

    def close(self) -> None:
        """End what waits beside the role. The role has ended."""
        if self._stopping is not None:
            self._stopping.cancel()

    async def listen(self) -> None:
        """Handle the transport's events for ever. The role's next wait raises errors from here."""
        if isinstance(self._transport, Immediate):
            self._transport.on_message(self._hear_at_once)
        try:
            while True:
                await self._hear(await self._transport.receive())
                self._tell_news()
        except Exception as error:
            self._fail(error)

    async def _hear(self, event: Event) -> None:
        if isinstance(event, Received):  # most events are
            self._hear_message(event.peer, event.message)
            return
        report = self._reporter.event
        match event:
            case Joined(peer):
                self.membership.join(peer)
                report("joined", peer=peer)
                await self._catch_up(peer)
            case Lost(peer, reason):
                self._went_away(peer)
                self.membership.lose(peer)
                report("lost", peer=peer, reason=reason)
            case Left(peer):
                self._went_away(peer)
                self.membership.leave(peer)
                report("left", peer=peer)
            case Refused(peer, reason):
                self.membership.leave(peer)
                report("refused", peer=peer, reason=reason)
            case BadMessage(peer, reason):
                self._tell("bad_message", peer, reason=reason)
            case Undelivered(peer, messages, reason):
                self._tell("undelivered", peer, messages=messages, reason=reason)

    def _hear_at_once(self, peer: str, message: Message) -> None:
        try:
            self._hear_message(peer, message)
            self._tell_news()
        except Exception as error:
            self._fail(error)

    def _hear_message(self, peer: str, message: Message) -> None:
        if message.kind == FINISH and peer == self._parent:
            self.stop()
        else:
            self._report_remarks(self._mailbox.put(message))

    def _went_away(self, peer: str) -> None:
        for attending in self._attending:
            attending.discard(peer)

    def _report_contributions(self, gathered: bool, kinds: Collection[str] | None = None) -> None:
        """Report whose messages count for the first time."""
        for kind, peers in self._contributions.news(gathered, kinds):
            self._reporter.event("contributed", kind=kind, gathered=gathered, peers=peers)

    async def _catch_up(self, peer: str) -> None:
        """Send the standing messages to a peer that joined or came back."""
        for audience in list(self._standing.values()):
            if peer in audience:
                await self._transport.send([peer], audience[peer], replace=True)

    def _report_remarks(self, remarks: Iterable[Remark]) -> None:
        for fate, message in remarks:
            fields = {"kind": message.kind}
            if fate == "not_finite":
                fields["what"] = str(message.not_finite)
            self._tell(fate, message.sender, round=message.round, **fields)

    def _tell(self, name: str, peer: str, *, round: int | None = None, **fields: Any) -> None:
        """Report an event that a peer can cause at any rate. Events above the allowance are only counted."""
        allowance = self._allowances.setdefault((name, peer), _Allowance(asyncio.get_running_loop().time()))
        untold = allowance.untold
        if not allowance.take(asyncio.get_running_loop().time()):
            return
        if untold:
            self._report_untold(name, peer, untold)
        self._reporter.event(name, **self._edge_rounds.numbers(round, peer), peer=peer, **fields)

    def _report_untold(self, name: str, peer: str, count: int) -> None:
        reason = f"{count} more events {name!r} came too fast to be recorded"
        self._reporter.event("bad_message", peer=peer, reason=reason)

    async def _until(self, reached: Callable[[], bool], patience: float) -> bool:
        """Wait until something is ``reached``. False if it is not within ``patience`` s."""
        try:
            async with asyncio.timeout(None if patience == math.inf else patience) as limit:
                while self.stopped or not reached():
                    await self._next_news()
        except TimeoutError:
            if not limit.expired():
                raise  # an error of what runs beside the role
            return False
        return True

    async def _next_news(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.stopped:
            raise Finished
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(change)
        await change

    def _fail(self, error: Exception) -> None:
        """Let the role's next wait raise an error that came up beside it."""
        self._failure = error
        self._tell_news()

    def _tell_news(self) -> None:
        if self._waiting:
            waiting = self._waiting
            self._waiting = []
            for change in waiting:
                if not change.done():  # it is done if the wait was cancelled
                    change.set_result(None)


class _Allowance:
    """The number of events that may still be reported: `TOLD_AT_ONCE` at first, `TOLD_A_SECOND` more each second."""

    def __init__(self, now: float) -> None:
        self.untold = 0
        self._left = float(TOLD_AT_ONCE)
        self._counted = now

    def take(self, now: float) -> bool:
        self._left = min(float(TOLD_AT_ONCE), self._left + (now - self._counted) * TOLD_A_SECOND)
        self._counted = now
        if self._left < 1:
            self.untold += 1
            return False
        self._left -= 1
        self.untold = 0
        return True
