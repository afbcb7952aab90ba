"""The channel between the orchestrator and the agents of a run, one on each host.

Messages are msgpack maps over ZeroMQ: ROUTER at the orchestrator, DEALER at each agent, CURVE both ways. An agent
connects to the orchestrator, so its host need not admit connections. All agents of a run have one pair of keys.

From an agent:
    hello {host, protocol, version, pid, address, mtu}  ready; waits for requests
    reply {id, result} or {id, error, kind}         the answer to a request; ``kind`` is a class of orchestrator.errors
    event {name, ...}                               see orchestrator.agent.worker
    beat {}                                         each BEAT seconds
    connected {}                                    after each connection: the orchestrator repeats what was lost
To an agent:
    request {id, call, arguments}                   see orchestrator.drivers.hosts.agents.calls
    notice {name, ...}                              needs no answer; notices arrive in order
    beat {}                                         an agent that receives none for its lease removes what it made

Replies, events, requests and notices are numbered from the agent's hello on. Each arrives once and in order, also if
connections break (`orchestrator.drivers.hosts.agents.delivery`).

A lease that is over cannot be renewed. An agent that was paused for longer finds requests from before the pause. The
orchestrator has given up its host in the meantime, and may have started its nodes elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

import zmq

from node.assignment import Keypair
from node.messaging.sockets import set_client_keys, watch, watch_events
from node.messaging.wire import unpack
from orchestrator.drivers.hosts.agents.delivery import Delivery, Message
from orchestrator.errors import OrchestratorError
from orchestrator.together import Tasks

logger = logging.getLogger(__name__)

PROTOCOL = 9
BEAT = 1.0  # s
PIECE = 1 << 20  # bytes of a file in one message

LARGEST = 16 << 20  # bytes of one message
CONTAINERS = 1 << 20  # lists and maps in one message: counters of links
HANDSHAKE = 10_000  # ms
_FLUSH = 1000  # ms to send the last messages


Answer = Callable[[str, Message], Awaitable[Any]]  # of a call with its arguments


class AgentChannel:
    """An agent's side. ``notice`` receives the orchestrator's notices."""

    def __init__(
        self,
        address: str,
        keys: Keypair,
        server: str,
        notice: Callable[[Message], None],
    ) -> None:
        """``address``: ``tcp://ADDRESS:PORT`` of the orchestrator. ``server``: its public key."""
        self._notice = notice
        self._requests: asyncio.Queue[Message] = asyncio.Queue()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = _FLUSH
        self._socket.maxmsgsize = LARGEST
        # No limits: the lease ends an agent with an orchestrator that does not read.
        self._socket.sndhwm = 0
        self._socket.rcvhwm = 0
        self._socket.reconnect_ivl = 100
        self._socket.handshake_ivl = HANDSHAKE
        self._socket.routing_id = secrets.token_bytes(8)  # the same after a broken connection
        set_client_keys(self._socket, keys, server)
        self._delivery = Delivery()
        self._hello: Message | None = None
        self._stop_following = watch_events(
            self._context,
            self._socket,
            zmq.EVENT_HANDSHAKE_SUCCEEDED,
            lambda event, value: self._connected(),
        )
        self._socket.connect(address)
        self._stop_watching = watch(self._socket, self._read)
        self._tasks = Tasks()
        self._tasks.start(self._beat())
        self._lease = math.inf
        self._waits: float | None = None
        self._last_contact = _now()
        self.has_contact = False  # whether the orchestrator has sent anything

    async def serve(
        self,
        hello: Message,
        answer: Answer,
        lease: float,
        waits: float | None = None,
    ) -> None:
        """Say hello and answer requests, each in a task of its own. Returns when the orchestrator was silent for
        ``lease`` seconds, or for ``waits`` seconds before its first message (by default ``lease``)."""
        self._delivery = Delivery()
        self._hello = {"type": "hello", "protocol": PROTOCOL, **hello}
        data = self._delivery.packed_once(self._hello)
        self._send(data)
        self._lease = lease
        self._waits = waits
        self._last_contact = _now()
        while not self._over:
            try:
                async with asyncio.timeout(BEAT):
                    request = await self._requests.get()
            except TimeoutError:
                continue
            if self._over:
                break
            answering = self._answer(request, answer)
            self._tasks.start(answering)

    def tell(self, name: str, **fields: Any) -> None:
        """Send an event."""
        event = {"type": "event", "name": name, **fields}
        self.send(event)

    def send(self, message: Message) -> None:
        """Send a message that arrives, unless the agent or its orchestrator ends before. TypeError for a message that
        cannot be sent."""
        data = self._delivery.packed(message)
        self._send(data)

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(zmq.Again):  # the orchestrator has refused the key: the lease ends this agent
            self._socket.send(data, zmq.NOBLOCK)
        asyncio.get_running_loop().call_soon(self._read)

    def _connected(self) -> None:
        """Repeat what may have been lost with the last connection."""
        if self._hello is None:
            return
        if not self.has_contact:
            hello = self._delivery.packed_once(self._hello)
            self._send(hello)
        connected = self._delivery.packed_once({"type": "connected"})
        self._send(connected)
        for data in self._delivery.unconfirmed():
            self._send(data)

    async def close(self) -> None:
        """Close. Messages that were sent before are still delivered if the orchestrator reads them within a second."""
        await self._tasks.cancel()
        self._stop_watching()
        self._stop_following()
        self._socket.close()
        await asyncio.to_thread(self._context.term)

    async def _answer(self, request: Message, answer: Answer) -> None:
        call = request["call"]
        reply: Message = {"type": "reply", "id": request["id"]}
        try:
            result = await answer(call, request["arguments"])
            self.send(reply | {"result": result})
            return
        except OrchestratorError as error:
            reply["error"] = str(error)
            reply["kind"] = type(error).__name__
        except Exception as error:
            logger.exception("the call '%s' failed", call)
            kind = type(error).__name__
            reply["error"] = f"{kind}: {error} (a bug of edgebed; see the agent's log)"
            reply["kind"] = ""
        self.send(reply)

    @property
    def _over(self) -> bool:
        if self.has_contact or self._waits is None:
            patience = self._lease
        else:
            patience = self._waits
        silent = _now() - self._last_contact
        return silent > patience

    def _read(self) -> None:
        while not self._socket.closed:
            try:
                data = self._socket.recv(zmq.NOBLOCK)
                received = unpack(data, CONTAINERS)
            except zmq.Again:
                return
            if self._over:
                continue
            message = self._delivery.take(received)
            if message is None:
                continue
            self._last_contact = _now()
            self.has_contact = True
            kind = message["type"]
            if kind == "request":
                self._requests.put_nowait(message)
            elif kind == "notice":
                self._notice(message)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            beat = self._delivery.packed_once({"type": "beat"})
            self._send(beat)


def _now() -> float:
    """The time in seconds on a clock that also runs while the host is suspended (clock_gettime(2))."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
