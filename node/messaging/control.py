"""The control plane between a node and the orchestrator. It bypasses the shaped links.

Messages are msgpack maps with a "type" over ZeroMQ: DEALER at the node, ROUTER at the orchestrator, CURVE both ways.

From a node:
    register {node, incarnation, start, pid, protocol}      ready; waits for start
    beat {cpu s, rss bytes, memory_pss? bytes}      once, and each ``Timeouts.beat`` from the start on
    event {name, round?, ...}                       see below
    metric {round, values}                          a row of measured values; values["scope"] says of what (SHARES)
    traffic {peers: [{peer, kind, direction: "sent"|"received", messages, bytes}]}    cumulative, when it changed
    done {reason}                                   the role ended: "rounds", "accuracy", "target" or "stopped"
    failed {error}                                  the node failed
To a node:
    start, stop, leave, slow {factor}, beat         beat is the lease: a node that receives nothing ends itself
    address {node, host}                            the node, this one or a peer, has another address from now on

Events: round {round, phase: "start"} and {round, phase: "end", gatherings, abandoned: how many of them}, joined {peer},
lost {peer, reason}, left {peer}, refused {peer, reason}, late {peer, kind, round}, superseded {peer, kind}, undelivered
{peer, messages}, round_abandoned {round, kind, have, need}, bad_message {peer, reason}, note {text}, overrun {asked s,
taken s, mode}, resumed {round}, frozen {seconds}, not_finite {round, what, ...}. The last means NaN or an infinity in
the reported value ``what`` {scope}, in the tensor ``what`` of a message that the node sends {kind}, or in that of a
peer's message, which is left out {peer, kind}. ``edge_round`` is added to the round if edges make several edge rounds
in one round (node.messaging.numbering).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

import msgpack
import zmq

from node.assignment import Assignment, Keypair, Timeouts
from node.errors import ControlError, WireError
from node.messaging.gate import CONNECTIONS, Gate
from node.messaging.sockets import (
    Authenticator,
    Context,
    Endpoint,
    sender,
    set_client_keys,
    set_server_keys,
    watch,
)
from node.messaging.wire import PROTOCOL, plain, quoted, unpack

logger = logging.getLogger(__name__)

SHARES = frozenset(
    {
        "accuracy",
        "accuracy_before_meeting",
        "cloud_accuracy",
        "docking_accuracy",
        "edge_accuracy",
    }
)
"""Metrics that are a share, from 0 to 1. A value outside is refused."""

_Content = dict[str, Any]  # of a message

_BEATS = 8  # of the orchestrator within a lease; a beat to a thousand nodes takes a tenth of a second
_BACKLOG = 10_000  # messages that one side queues while the other does not read
_READ_AHEAD = 100  # messages that wait at the orchestrator, per node and of all nodes together
_READ_AT_ONCE = 64  # messages to read before other coroutines run
_LARGEST = 4 << 20  # bytes of one message
_CONTAINERS = 1 << 16  # lists and maps in one message: rows of traffic
_HANDSHAKE = 10_000  # ms; a node that is starved of processor time needs seconds for a handshake
_FLUSH = 10_000  # ms to send the last messages; on a busy host, a thousand nodes that end are read within seconds


class Reporter(Protocol):
    """The receiver of a node's events and metrics: the control plane, or a list in a test."""

    def event(
        self,
        name: str,
        *,
        round: int | None = None,
        **fields: Any,
    ) -> None: ...

    def metric(self, round: int | None, values: Mapping[str, Any]) -> None: ...


class ControlClient:
    """A node's side of the control plane, and its `Reporter`.

    Create it, ``register``, and ``receive`` messages. Messages are dropped if the orchestrator does not read them: the
    lease ends such a node anyway.
    """

    def __init__(self, assignment: Assignment, incarnation: str, context: Context) -> None:
        self._assignment = assignment
        self._incarnation = incarnation
        self._received: asyncio.Queue[_Content] = asyncio.Queue()
        self._endpoint = Endpoint(assignment.control_endpoint)
        self._socket = context.socket(zmq.DEALER)
        self._socket.linger = _FLUSH
        self._socket.maxmsgsize = _LARGEST
        self._socket.sndhwm = _BACKLOG
        self._socket.rcvhwm = _BACKLOG
        self._socket.reconnect_ivl = 100
        set_client_keys(self._socket, assignment.keys, assignment.control_key)
        self._socket.connect(self._endpoint.address)
        self._stop_watching = watch(self._socket, self._read)
        self._last_received = asyncio.get_running_loop().time()

    def register(self) -> None:
        """Report to the orchestrator that this node is ready. From now on the orchestrator renews its lease."""
        self._last_received = asyncio.get_running_loop().time()
        registration = {
            "type": "register",
            "node": self._assignment.node,
            "incarnation": self._incarnation,
            "start": self._assignment.start,
            "pid": os.getpid(),
            "protocol": PROTOCOL,
        }
        self.send(registration)

    async def receive(self) -> _Content:
        """Wait for the next message except beats. ControlError when the orchestrator was silent for the lease."""
        lease = self._assignment.timeouts.lease
        pause = lease / _BEATS
        loop = asyncio.get_running_loop()
        while self._received.empty():
            start = loop.time()
            # Not wait_for: until Python 3.12 it swallows a cancellation that comes together with the message.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    return await self._received.get()
            # A node that was frozen, or starved of processor time, must not count that time as the peer's silence.
            took = loop.time() - start
            self._last_received += max(0.0, took - 2 * pause)
            silence = loop.time() - self._last_received
            if silence > lease:
                self._socket.linger = 0
                node = self._assignment.node
                raise ControlError(f"{node}: nothing received from the orchestrator for {lease:g} s; ending")
        return self._received.get_nowait()

    def send(self, message: Mapping[str, Any]) -> None:
        data = msgpack.packb(message, default=plain)
        try:
            self._socket.send(data, zmq.NOBLOCK)
        except zmq.Again:
            logger.warning("the orchestrator does not read; dropped a message of type %s", message["type"])
        asyncio.get_running_loop().call_soon(self._read)

    def event(
        self,
        name: str,
        *,
        round: int | None = None,
        **fields: Any,
    ) -> None:
        message: _Content = {"type": "event", "name": name}
        if round is not None:
            message["round"] = round
        self.send({**message, **fields})

    def metric(self, round: int | None, values: Mapping[str, Any]) -> None:
        message = {"type": "metric", "round": round, "values": dict(values)}
        self.send(message)

    def close(self) -> None:
        """Close. Messages sent before are delivered if the orchestrator, unless it fell silent, reads them in 10 s."""
        self._stop_watching()
        self._socket.close()
        self._endpoint.close()

    def _read(self) -> None:
        while not self._socket.closed:
            try:
                data = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            message = unpack(data)
            self._last_received = asyncio.get_running_loop().time()
            if message.get("type") != "beat":
                self._received.put_nowait(message)


class ControlServer:
    """The orchestrator's side. It identifies each node by its key and renews the leases of all nodes."""

    def __init__(
        self,
        address: str,
        keys: Keypair,
        nodes: Mapping[str, str],
        lease: float = Timeouts.lease,
    ) -> None:
        """``address``: the ZeroMQ endpoint to bind; ControlError if that fails. ``nodes``: the public key of each node
        that may connect. ``lease``: that of the nodes, in seconds."""
        self._addresses: dict[str, bytes] = {}
        self._starts: dict[str, int] = {}  # the number of each node's latest process that has registered
        self._received: asyncio.Queue[tuple[str, _Content]] = asyncio.Queue()
        self._context = zmq.Context()
        names = {key: name for name, key in nodes.items()}
        self._authenticator = Authenticator(self._context, names)
        self._endpoint = Endpoint(address)
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.maxmsgsize = _LARGEST
        self._socket.sndhwm = _BACKLOG
        self._socket.rcvhwm = _READ_AHEAD
        self._socket.handshake_ivl = _HANDSHAKE
        set_server_keys(self._socket, keys)
        # One process may connect for many nodes, as a relay does.
        most = CONNECTIONS * max(1, len(nodes))
        self._gate = Gate(self._context, self._socket, most)
        try:
            self._socket.bind(self._endpoint.address)
        except zmq.ZMQError as error:
            self._release()
            raise ControlError(f"{address}: cannot listen there ({error}); choose another run directory") from None
        self._stop_watching = watch(self._socket, self._read)
        self._beating = asyncio.create_task(self._beat(lease / _BEATS))

    async def messages(self) -> AsyncIterator[tuple[str, _Content]]:
        """Yield each message with the name of its sender, for ever.

        A message that cannot be read is replaced by a message "unreadable" with the ``reason``. The caller must check
        all other content.
        """
        for number in itertools.count(1):
            yield await self._received.get()
            if self._received.qsize() == _READ_AHEAD - 1:
                self._read()
            if number % _READ_AT_ONCE == 0:
                await asyncio.sleep(0)  # otherwise no beat is sent while a node sends more than the caller can take

    async def send(self, node: str, message: Mapping[str, Any]) -> None:
        """Send to the node's latest incarnation. The message is dropped if the node is not connected."""
        self._send(node, msgpack.packb(message))

    async def close(self) -> None:
        self._beating.cancel()
        self._stop_watching()
        self._release()

    def _release(self) -> None:
        self._gate.close()
        self._socket.close()
        self._authenticator.close()
        self._context.term()
        self._endpoint.remove()
        self._endpoint.close()

    def _read(self) -> None:
        """Read the available messages, up to `_READ_AHEAD`. Messages beyond that wait at the node."""
        for _ in range(_READ_AT_ONCE):
            if self._socket.closed or self._received.qsize() >= _READ_AHEAD:
                return
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            address = frames[0]
            frame = frames[-1]
            node = sender(frame)
            try:
                if len(frames) != 2:
                    raise WireError(f"{len(frames) - 1} frames; a control message has one")
                message = unpack(frame.buffer, _CONTAINERS)
                self._accept(node, address.bytes, message)
            except WireError as error:
                unreadable = {"type": "unreadable", "reason": str(error)}
                self._received.put_nowait((node, unreadable))
        asyncio.get_running_loop().call_soon(self._read)  # other coroutines run in between, however much a node sends

    def _accept(self, node: str, address: bytes, message: _Content) -> None:
        if not isinstance(message.get("type"), str):
            raise WireError("no type")
        if message["type"] == "register":
            claimed = message.get("node")
            protocol = message.get("protocol")
            if claimed != node:
                raise WireError(f"claims to be {quoted(claimed)}")
            if protocol == PROTOCOL:
                self._note_address(node, address, message.get("start"))
            else:
                error = f"speaks protocol {quoted(protocol)}, the orchestrator {PROTOCOL}: use one version"
                message = {"type": "failed", "error": error}  # the node receives nothing, so its lease ends it
        self._received.put_nowait((node, message))

    def _note_address(self, node: str, address: bytes, start: Any) -> None:
        """Note where a process of a node is. That of a later one stays. ``start``: see `Assignment`."""
        number = start if type(start) is int else 0
        if number >= self._starts.get(node, 0):
            self._starts[node] = number
            self._addresses[node] = address

    def _send(self, node: str, data: bytes) -> None:
        address = self._addresses.get(node)
        if address is None:
            return
        self._socket.send_multipart([address, data], zmq.NOBLOCK)  # to a node that is gone or does not read: dropped
        asyncio.get_running_loop().call_soon(self._read)

    async def _beat(self, pause: float) -> None:
        data = msgpack.packb({"type": "beat"})
        while True:
            for node in self._addresses:
                self._send(node, data)
            await asyncio.sleep(pause)
