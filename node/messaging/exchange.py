"""The layer between a role and its transport: it handles events, tracks membership, and implements the waits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Set
from typing import Any, Literal, TypeVar

from node.assignment import Gathering
from node.errors import Finished
from node.messaging.contributions import Contributions
from node.messaging.control import Reporter
from node.messaging.delivery.association import (
    BadMessage,
    Event,
    Joined,
    Left,
    Lost,
    Received,
    Refused,
    Undelivered,
)
from node.messaging.gathering import Gather, Mailbox, Remark
from node.messaging.membership import Membership
from node.messaging.numbering import EdgeRounds
from node.messaging.transport import Immediate, Transport
from node.messaging.wire import Message, frozen

FINISH = "finish"  # the kind of the message with which a parent ends the run of its children
TOLD_AT_ONCE = 100  # events of one name and peer; more would cost as much as what they report
TOLD_A_SECOND = 10

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
        present = audience & self.membership.present
        await self._transport.send(sorted(present), message, replace=True)

    async def publish_each(self, kind: str, messages: Mapping[str, Message]) -> None:
        """Publish a different message of ``kind`` to each peer."""
        messages = {peer: frozen(message) for peer, message in messages.items()}
        self._standing[kind] = dict(messages)
        present = messages.keys() & self.membership.present
        for peer in sorted(present):
            message = messages[peer]
            await self._transport.send([peer], message, replace=True)

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
        count: int | None = None
        if quorum is None:
            quorum = self._rule.quorum
            count = self._rule.count
        gather = Gather(kind, round, frozenset(peers), quorum, count, enough)
        self._contributions.want([kind])
        self._report_contributions(gathered=True)
        if deadline is None:
            deadline = self._rule.deadline
        self._report_remarks(self._mailbox.begin(gather))
        membership = self.membership
        attending = set(gather.peers & membership.present)
        self._attending.append(attending)

        def answered() -> bool:
            return gather.complete(membership.reachable, membership.left)

        try:
            complete = await self._until(answered, deadline)
            if not complete and gather.quorum != 0:
                self._report_unanswered(gather, attending, deadline)
        finally:
            self._attending.remove(attending)
            self._mailbox.end(gather)
        messages = gather.result(membership.left)
        self._contributions.gathered(gather, messages)
        if gather.quorum != 0 and gather.peers:
            self.gatherings += 1
            if not messages:
                need = max(1, gather.need(membership.left))
                first_peer = min(gather.peers)
                self.abandon(kind, round, first_peer, gather.answers, need)
        return messages

    def abandon(
        self,
        kind: str,
        round: int | None,
        peer: str,
        have: Collection[str],
        need: int,
    ) -> None:
        """Report that a gathering of ``peer`` and others, which ``have`` answered, was abandoned. The round continues
        without it."""
        self.abandoned += 1
        numbers = self._edge_rounds.numbers(round, peer)
        self._reporter.event(
            "round_abandoned",
            **numbers,
            kind=kind,
            have=len(have),
            need=need,
            peers=sorted(have),
        )

    def refuse(self, message: Message, reason: str) -> None:
        """Report that the role leaves out a message. If nothing is left of its gathering, that is abandoned."""
        numbers = self._edge_rounds.numbers(message.round, message.sender)
        self._reporter.event(
            "bad_message",
            **numbers,
            peer=message.sender,
            kind=message.kind,
            reason=f"message {message.kind!r} {reason}",
        )
        gathering = self._contributions.refuse(message)
        if gathering is not None:
            kind, round = gathering
            self.abandon(kind, round, message.sender, (), 1)

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
                continue
            if message.sender == self._parent:
                return message  # also with values that are not finite, or this node would wait for ever
            if message.not_finite is None:
                self._contributions.received(message)
                return message
            self._report_remarks([("not_finite", message)])
            if left_out is not None:
                left_out([message.sender])

    async def unless_stopped(self, work: Awaitable[T]) -> T:
        """Return the result of ``work``. Raise `Finished` as soon as the run is over."""
        task = asyncio.ensure_future(work)
        if self._stopping is None:
            stopping = self._stopped.wait()
            self._stopping = asyncio.ensure_future(stopping)
        try:
            tasks = (task, self._stopping)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
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
        """Wait for these peers, which are about to start, in the gatherings that follow."""
        self.membership.awaited.update(peers)

    def lose(self, peer: str) -> None:
        """Do not wait for a peer that will not come."""
        self._went_away(peer)
        self.membership.lose(peer)
        self._wake()

    def dismiss(self, peers: Iterable[str]) -> None:
        """Forget these peers. They have no part in later rounds, unless they are admitted again."""
        gone = frozenset(peers)
        for peer in gone:
            self.membership.forget(peer)
        waiting = self._mailbox.waiting(gone)
        self._contributions.leave(waiting)
        self._contributions.forget(gone)
        self._mailbox.forget(gone)
        for kind, audience in self._standing.items():
            remaining = {peer: message for peer, message in audience.items() if peer not in gone}
            self._standing[kind] = remaining
        for name, peer in list(self._allowances):
            if peer in gone:
                del self._allowances[name, peer]

    async def wait_for_peers(self, patience: float) -> None:
        """Wait until every expected peer was present once, for ``patience`` s at most."""
        await self._until(lambda: self.membership.complete, patience)

    def stop(self) -> None:
        self._stopped.set()
        self._wake()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def report_unreceived(self) -> None:
        """Report the senders of the last messages that counted, messages of kinds that the role never waited for, and
        events that were only counted. The role has ended."""
        for gathered in (True, False):
            self._report_contributions(gathered)
        waiting = self._mailbox.waiting()
        self._contributions.leave(waiting)
        unreceived = self._contributions.unreceived()
        for kind, peers in unreceived.items():
            self._reporter.event("unreceived", kind=kind, peers=peers)
        for (name, peer), allowance in self._allowances.items():
            if allowance.unreported:
                self._report_excess(name, peer, allowance.unreported)

    def close(self) -> None:
        """End what waits concurrently with the role. The role has ended."""
        if self._stopping is not None:
            self._stopping.cancel()

    async def listen(self) -> None:
        """Handle the transport's events for ever. The role's next wait raises errors from here."""
        if isinstance(self._transport, Immediate):
            self._transport.on_message(self._handle_message_now)
        try:
            while True:
                event = await self._transport.receive()
                await self._handle(event)
                self._wake()
        except Exception as error:
            self._fail(error)

    async def _handle(self, event: Event) -> None:
        if isinstance(event, Received):  # most events are
            self._handle_message(event.peer, event.message)
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
                self._report_limited("bad_message", peer, reason=reason)
            case Undelivered(peer, messages, reason):
                self._report_limited("undelivered", peer, messages=messages, reason=reason)

    def _handle_message_now(self, peer: str, message: Message) -> None:
        try:
            self._handle_message(peer, message)
            self._wake()
        except Exception as error:
            self._fail(error)

    def _handle_message(self, peer: str, message: Message) -> None:
        if message.kind == FINISH and peer == self._parent:
            self.stop()
            return
        remarks = self._mailbox.put(message)
        self._report_remarks(remarks)

    def _went_away(self, peer: str) -> None:
        for attending in self._attending:
            attending.discard(peer)

    def _report_unanswered(self, gather: Gather, attending: Set[str], deadline: float) -> None:
        """Report the peers that were present all the time and have not answered."""
        silent = sorted(gather.missing & attending)
        if not silent:
            return
        numbers = self._edge_rounds.numbers(gather.round, silent[0])
        self._reporter.event(
            "unanswered",
            **numbers,
            kind=gather.kind,
            peers=silent,
            deadline=deadline,
        )

    def _report_contributions(self, gathered: bool, kinds: Collection[str] | None = None) -> None:
        """Report the senders of messages that count for the first time."""
        news = self._contributions.news(gathered, kinds)
        for kind, peers in news:
            self._reporter.event("contributed", kind=kind, gathered=gathered, peers=peers)

    async def _catch_up(self, peer: str) -> None:
        """Send the standing messages to a peer that joined or came back."""
        for audience in list(self._standing.values()):
            if peer in audience:
                message = audience[peer]
                await self._transport.send([peer], message, replace=True)

    def _report_remarks(self, remarks: Iterable[Remark]) -> None:
        for fate, message in remarks:
            fields = {"kind": message.kind}
            if fate == "not_finite":
                fields["what"] = str(message.not_finite)
            self._report_limited(fate, message.sender, round=message.round, **fields)

    def _report_limited(
        self,
        name: str,
        peer: str,
        *,
        round: int | None = None,
        **fields: Any,
    ) -> None:
        """Report an event that a peer can cause at any rate. Events above the allowance are only counted."""
        now = asyncio.get_running_loop().time()
        allowance = self._allowances.setdefault((name, peer), _Allowance(now))
        unreported = allowance.unreported
        if not allowance.take(now):
            return
        if unreported:
            self._report_excess(name, peer, unreported)
        numbers = self._edge_rounds.numbers(round, peer)
        self._reporter.event(name, **numbers, peer=peer, **fields)

    def _report_excess(self, name: str, peer: str, count: int) -> None:
        reason = f"{count} more events {name!r} came too fast to be recorded"
        self._reporter.event("bad_message", peer=peer, reason=reason)

    async def _until(self, reached: Callable[[], bool], patience: float) -> bool:
        """Wait until ``reached`` returns true. False if it does not within ``patience`` s."""
        if patience == math.inf:
            seconds = None
        else:
            seconds = patience
        try:
            async with asyncio.timeout(seconds) as limit:
                while self.stopped or not reached():
                    await self._next_news()
        except TimeoutError:
            if not limit.expired():
                raise  # an error of what runs concurrently with the role
            return False
        return True

    async def _next_news(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.stopped:
            raise Finished
        loop = asyncio.get_running_loop()
        change: asyncio.Future[None] = loop.create_future()
        self._waiting.append(change)
        await change

    def _fail(self, error: Exception) -> None:
        """Let the role's next wait raise an error that occurred outside the role."""
        self._failure = error
        self._wake()

    def _wake(self) -> None:
        """Wake the waits, since something has changed."""
        waiting = self._waiting
        if not waiting:
            return
        self._waiting = []
        for change in waiting:
            if not change.done():  # it is done if the wait was cancelled
                change.set_result(None)


class _Allowance:
    """The number of events that may still be reported: `TOLD_AT_ONCE` at first, `TOLD_A_SECOND` more each second."""

    def __init__(self, now: float) -> None:
        self.unreported = 0
        self._left = float(TOLD_AT_ONCE)
        self._counted = now

    def take(self, now: float) -> bool:
        regained = (now - self._counted) * TOLD_A_SECOND
        self._left = min(float(TOLD_AT_ONCE), self._left + regained)
        self._counted = now
        if self._left < 1:
            self.unreported += 1
            return False
        self._left -= 1
        self.unreported = 0
        return True
