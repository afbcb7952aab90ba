"""The data plane: the `Transport` interface, and its implementation over ZeroMQ.

`ZmqTransport` binds one receiving socket to the node's address, and opens one sending socket per peer, so that no peer
blocks another. CURVE encrypts and authenticates. Unknown keys are refused (`node.messaging.sockets.Authenticator`).
`node.messaging.delivery.association` decides when to send what, and which peers are present. This module carries it
out.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import zmq

from node.assignment import Assignment
from node.errors import TransportError
from node.messaging.delivery.association import Association, Event, Traffic
from node.messaging.delivery.chunk_size import LARGEST_CHUNK
from node.messaging.delivery.peers import Peers
from node.messaging.gate import CONNECTIONS, Gate
from node.messaging.sockets import (
    Authenticator,
    Context,
    Socket,
    sender,
    set_client_keys,
    set_server_keys,
    watch,
)
from node.messaging.wire import LIMITS, Buffer, Message

_SEND_AHEAD = 8  # packets that libzmq queues for a peer, beyond the kernel's buffers: more would only hide delay
_RECEIVE_AHEAD = 4  # packets that libzmq queues from each peer; then TCP slows the peer down
_PACKETS_AT_ONCE = 64  # packets to read before other coroutines run
_RECONNECT = 50  # ms between attempts to connect
_ADDRESS_PATIENCE = 10.0  # s in which the node's address must appear
# Plain numbers: combining flags takes longer than sending.
_AT_ONCE = int(zmq.NOBLOCK)
_MORE = int(zmq.SNDMORE)
_LINGER = 500  # ms for packets that libzmq holds when the transport closes


class Transport(Protocol):
    """The exchange of messages between a node and its peers.

    Delivery is in order. It is complete as long as the peer is present. The queue of a peer that goes away is dropped
    and reported (`Undelivered`). Conformance: tests/conformance/transports.py.
    """

    async def start(self) -> None:
        """Start listening and connecting. TransportError if the transport cannot bind this node's address."""

    async def send(
        self,
        to: Iterable[str],
        message: Message,
        *,
        replace: bool = False,
    ) -> None:
        """Queue a message for some peers. The message is encoded once, before the first wait. Tensors that are not
        `frozen` are copied.

        Waits while the queue of a present peer is full, never for another peer. A peer that has not joined yet gets
        its messages when it joins, as many as its queue takes. With ``replace`` the message replaces queued messages
        of its kind, and ``send`` does not wait.
        """

    async def receive(self) -> Event:
        """Wait for the next event: a message, or a change in the presence of a peer."""

    def traffic(self) -> list[Traffic]:
        """Counts per peer, kind and direction since the start."""

    async def close(self, flush: float | None = None) -> None:
        """Close immediately without a goodbye, or send the queued messages and a goodbye within ``flush`` s."""


@runtime_checkable
class Immediate(Protocol):
    """A transport that can hand over a message at the moment of its arrival, which saves a turn of the event loop."""

    def on_message(self, handle: Callable[[str, Message], None]) -> None:
        """Call ``handle`` with each message and its sender. ``receive`` returns a message only if it arrived while
        earlier events waited for ``receive``."""


@dataclass(frozen=True)
class _Connection:
    socket: Socket
    stop_watching: Callable[[], None]

    def close(self, linger: int = 0) -> None:
        self.stop_watching()
        self.socket.close(linger)


def _send(socket: Socket, frames: Sequence[Buffer]) -> None:
    """Send a packet; zmq.Again if the socket takes none now. As ``send_multipart``, in less than half of its time.

    libzmq reads a large frame in place, after the call, so it must not be changed afterwards."""
    for frame in frames[:-1]:
        socket.send(frame, _AT_ONCE | _MORE)  # once it has taken the first frame, a socket takes the others
    last = frames[-1]
    small = len(last) < zmq.COPY_THRESHOLD
    socket.send(last, _AT_ONCE, copy=small)


def _receive(socket: Socket) -> list[zmq.Frame]:
    """The frames of a packet; zmq.Again if there is none. As ``recv_multipart``, in half of its time."""
    frame = socket.recv(_AT_ONCE, copy=False)
    frames = [frame]
    while frame.more:
        frame = socket.recv(_AT_ONCE, copy=False)
        frames.append(frame)
    return frames


class ZmqTransport:
    """The `Transport` over ZeroMQ, TCP and CURVE. The caller owns the context, which may serve one transport only."""

    def __init__(self, assignment: Assignment, incarnation: str, context: Context) -> None:
        self._assignment = assignment
        timeouts = assignment.timeouts
        lost_after = int(timeouts.lost_after * 1000)  # ms
        self._handshake = max(1, lost_after)  # the timeout of a handshake
        self._context = context
        self._addresses = {peer.name: peer for peer in assignment.peers}
        self._peers = Peers(
            node=assignment.node,
            names=self._addresses,
            incarnation=incarnation,
            timeouts=timeouts,
            attend=self._attend,
        )
        for peer in assignment.peers:
            if peer.away:
                self._peers.associations[peer.name].keep_away()
        self._authenticator: Authenticator | None = None
        self._gate: Gate | None = None
        self._listener: _Connection | None = None
        self._connections: dict[str, _Connection] = {}

    async def start(self) -> None:
        peers = self._assignment.peers
        names = {peer.public_key: peer.name for peer in peers}
        self._authenticator = Authenticator(self._context, names)
        socket = self._context.socket(zmq.PULL)
        socket.rcvhwm = _RECEIVE_AHEAD
        socket.maxmsgsize = LARGEST_CHUNK + LIMITS.header + 1024
        # TCP keepalive closes the connections of a peer that vanished without a goodbye.
        socket.tcp_keepalive = 1
        socket.tcp_keepalive_idle = 60
        # A client that does not finish its handshake in time is disconnected.
        socket.handshake_ivl = self._handshake
        accepted = {peer.host for peer in peers}
        if self._assignment.network:
            accepted.add(self._assignment.network)
        for address in sorted(accepted):
            socket.setsockopt(zmq.TCP_ACCEPT_FILTER, address.encode())
        set_server_keys(socket, self._assignment.keys)
        # Peers of one address share its connections.
        sharing = Counter(peer.host for peer in peers)
        most_peers = max(sharing.values(), default=1)
        self._gate = Gate(self._context, socket, CONNECTIONS * most_peers)
        stop_watching = watch(socket, self._read)
        self._listener = _Connection(socket, stop_watching)
        await self._bind(socket)
        self._peers.start()

    async def readdress(self, node: str, host: str) -> None:
        """Use the new address of a node: listen on it if the node is this one. Peers are connected there when they were
        lost, as no kernel reports a new address of another machine. TransportError if it does not appear."""
        if node in self._addresses:
            former_address = self._addresses[node]
            self._addresses[node] = dataclasses.replace(former_address, host=host)
        elif node == self._assignment.node:
            former = self._endpoint
            self._assignment = dataclasses.replace(self._assignment, host=host)
            if self._listener is not None:
                await self._bind(self._listener.socket)
                self._listener.socket.unbind(former)

    async def send(
        self,
        to: Iterable[str],
        message: Message,
        *,
        replace: bool = False,
    ) -> None:
        await self._peers.send(to, message, replace)

    async def receive(self) -> Event:
        return await self._peers.receive()

    def traffic(self) -> list[Traffic]:
        return self._peers.traffic()

    async def close(self, flush: float | None = None) -> None:
        await self._peers.stop(flush)
        if flush is None:
            linger = 0
        else:
            linger = _LINGER
        for connection in self._connections.values():
            connection.close(linger)
        if self._gate is not None:
            self._gate.close()
        if self._listener is not None:
            self._listener.close()
        if self._authenticator is not None:
            self._authenticator.close()

    @property
    def _endpoint(self) -> str:
        return f"tcp://{self._assignment.host}:{self._assignment.port}"

    async def _bind(self, socket: Socket) -> None:
        """Bind to the node's address. The driver may configure that address a while after the node starts."""
        address = self._endpoint
        loop = asyncio.get_running_loop()
        patience = loop.time() + _ADDRESS_PATIENCE
        while True:
            try:
                socket.bind(address)
                return
            except zmq.ZMQError as error:
                if loop.time() > patience:
                    raise TransportError(
                        f"{self._assignment.node}: cannot listen on {address} ({error}); is data0 attached?"
                    ) from None
            await asyncio.sleep(0.05)

    def _attend(self, association: Association) -> None:
        if association.state == "left":
            connection = self._connections.pop(association.peer, None)
            if connection is not None:
                connection.close()
        elif association.reopen:
            self._connect(association)
        if association.peer in self._connections:
            self._write(association)

    def _connect(self, association: Association) -> None:
        peer = self._addresses[association.peer]
        if peer.name in self._connections:
            self._connections[peer.name].close()
        socket = self._context.socket(zmq.PUSH)
        socket.linger = 0
        socket.sndhwm = _SEND_AHEAD
        socket.immediate = True  # libzmq takes no packet before the connection is established
        socket.reconnect_ivl = _RECONNECT
        # TCP repeats a SYN at growing intervals, so only a new attempt sends one soon.
        attempt = self._assignment.timeouts.lost_after / 4  # s
        socket.connect_timeout = max(1, int(attempt * 1000))
        socket.handshake_ivl = self._handshake
        set_client_keys(socket, self._assignment.keys, peer.public_key)
        socket.connect(f"tcp://{peer.host}:{peer.port}")
        now = asyncio.get_running_loop().time()
        association.open(now)
        stop_watching = watch(socket, lambda: self._write(association))
        self._connections[peer.name] = _Connection(socket, stop_watching)

    def _write(self, association: Association) -> None:
        socket = self._connections[association.peer].socket
        outbound = association.outbound
        frames = outbound.peek()
        while frames is not None:
            try:
                _send(socket, frames)
            except zmq.Again:
                now = asyncio.get_running_loop().time()
                outbound.chunk.refused(now)
                return
            self._peers.taken(association)
            frames = outbound.peek()
        outbound.chunk.idle()

    def _read(self) -> None:
        assert self._listener is not None
        assert self._gate is not None
        socket = self._listener.socket
        for _ in range(_PACKETS_AT_ONCE):
            if socket.closed:
                return
            try:
                frames = _receive(socket)
            except zmq.Again:
                return
            peer = sender(frames[0])
            packet = [frame.buffer for frame in frames]
            host = self._addresses[peer].host
            size = sum(map(len, packet))
            self._gate.delivered(host, size)
            self._peers.handle(peer, packet)
        asyncio.get_running_loop().call_soon(self._read)
