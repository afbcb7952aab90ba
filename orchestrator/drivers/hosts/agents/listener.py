"""The orchestrator's side of the channel to the agents of its hosts (`orchestrator.drivers.hosts.agents.channel`)."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable, Set
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

import zmq

from node.assignment import Keypair
from node.errors import WireError
from node.messaging.gate import Gate
from node.messaging.sockets import Authenticator, set_server_keys, watch
from node.messaging.wire import quoted, unpack
from orchestrator import errors
from orchestrator.drivers.hosts.agents.calls import PATIENCE, TIMEOUTS, bound, result_of
from orchestrator.drivers.hosts.agents.channel import BEAT, CONTAINERS, HANDSHAKE, LARGEST, PROTOCOL
from orchestrator.drivers.hosts.agents.delivery import Delivery, Message
from orchestrator.errors import DriverError, HostError, LostError

logger = logging.getLogger(__name__)

ANEW = ["python -m orchestrator hosts down", "python -m orchestrator hosts up"]
"""The commands that replace agents that were left running."""

_CONNECTIONS = 16  # of each address; several hosts may share one
_ERRORS = (
    "HostError",
    "DriverError",
    "FabricError",
    "EngineError",
    "ChildError",
)
"""The errors that an agent may raise in the orchestrator."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class _Agent:
    """An agent that has said hello. ``address`` is the socket's name for its connection."""

    address: bytes
    hello: Message
    last_contact: float
    waiting: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    delivery: Delivery = field(default_factory=Delivery)


class Agents:
    """The orchestrator's side. ``on_event`` receives an agent's events. ``on_loss`` receives a host after its agent
    restarted or was silent for the lease, with the reason and the silent seconds. ``on_arrival`` receives a host when
    its agent has connected."""

    def __init__(
        self,
        keys: Keypair,
        agents: str,
        lease: float,
        on_event: Callable[[str, Message], None] = lambda host, event: None,
        on_loss: Callable[[str, str, float], None] = lambda host, reason, silent: None,
        on_arrival: Callable[[str], None] = lambda host: None,
    ) -> None:
        """``agents``: the public key of the agents."""
        self._lease = lease
        self._on_event = on_event
        self._on_loss = on_loss
        self._on_arrival = on_arrival
        self._agents: dict[str, _Agent] = {}
        self._names: dict[bytes, str] = {}
        self._refusals: dict[str, str] = {}
        self._change = asyncio.Event()
        self._ids = itertools.count(1)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._authenticator = Authenticator(self._context, {agents: "agent"})
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.maxmsgsize = LARGEST
        self._socket.sndhwm = 0
        self._socket.rcvhwm = 0
        self._socket.router_mandatory = True
        self._socket.router_handover = True  # to an agent that connects again before the broken connection is noticed
        self._socket.handshake_ivl = HANDSHAKE
        set_server_keys(self._socket, keys)
        self._gate = Gate(self._context, self._socket, _CONNECTIONS)
        self._beating = asyncio.create_task(self._beat())
        self._stop_watching: Callable[[], None] = lambda: None

    def listen(self, address: str, port: int | None = None) -> int:
        """Listen on a port of this ``address``, by default a free one, and return it. HostError if that fails."""
        try:
            self._socket.bind(f"tcp://{address}:{port or '*'}")
        except zmq.ZMQError as error:
            endpoint = address
            remedy = "is this the address at which the other hosts reach this one"
            if port:
                endpoint = f"{address}:{port}"
                remedy += f", and does no other program use TCP port {port} (`ss -ltnp`)"
            raise HostError(
                f"cannot listen on {endpoint} for the agents of the hosts ({error})",
                f"{remedy}?",
            ) from None
        self._stop_watching = watch(self._socket, self._read)
        endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        _, _, used_port = endpoint.rpartition(":")
        return int(used_port)

    @property
    def online(self) -> list[str]:
        """The hosts with connected agents."""
        return sorted(self._agents)

    def hello(self, host: str) -> Message:
        """What the agent of a host reported in its hello. KeyError if it is not connected."""
        return self._agents[host].hello

    async def wait_for(self, hosts: Iterable[str], timeout: float) -> list[str]:
        """Wait for the agents of these hosts, at most ``timeout`` s. Returns the hosts without. HostError for another
        version."""
        wanted = set(hosts)
        try:
            async with asyncio.timeout(timeout):
                while wanted - self._agents.keys():
                    self._check_versions(wanted)
                    self._change.clear()
                    await self._change.wait()
        except TimeoutError:
            pass
        return sorted(wanted - self._agents.keys())

    def _check_versions(self, wanted: Set[str]) -> None:
        """HostError if the agent of one of these hosts has another version."""
        refused = wanted & self._refusals.keys()
        if refused:
            host = min(refused)
            raise HostError(
                f"the agent on {host} {self._refusals[host]}",
                "give all hosts the same image; restart the agents that `hosts up` has left running",
                ANEW,
            )

    async def call(
        self,
        host: str,
        method: Callable[Concatenate[Any, P], Awaitable[T]],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """Call a method on a host. Errors as `request`; DriverError for a result of another type."""
        name = method.__qualname__
        timeout = TIMEOUTS.get(name, PATIENCE)
        by_name = bound(method, *arguments, **named)
        data = await self.request(host, name, by_name, timeout)
        try:
            result: T = result_of(method, data)
        except WireError as error:
            raise DriverError(f"{host}: its agent gave an invalid answer to '{name}' ({error})") from None
        return result

    async def request(
        self,
        host: str,
        call: str,
        arguments: Message,
        timeout: float = PATIENCE,
    ) -> Any:
        """The result of a call as plain data. LostError if the agent is away or is lost before it answers; DriverError
        if it does not answer in time. An error of the agent is raised with its class and the name of the host."""
        agent = self._agents.get(host)
        if agent is None:
            raise LostError(f"{host}: its agent is away")
        number = next(self._ids)
        request = {
            "type": "request",
            "id": number,
            "call": call,
            "arguments": arguments,
        }
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Any] = loop.create_future()
        agent.waiting[number] = reply
        try:
            self._deliver(agent, request)
            async with asyncio.timeout(timeout):
                return await reply
        except TimeoutError:
            raise DriverError(f"{host}: its agent gave no answer to '{call}' for {timeout:g} s") from None
        finally:
            agent.waiting.pop(number, None)

    def tell(self, host: str, name: str, **fields: Any) -> None:
        """Send a notice. An agent that is away misses it."""
        agent = self._agents.get(host)
        if agent is None:
            return
        notice = {"type": "notice", "name": name, **fields}
        self._deliver(agent, notice)

    def lose(self, host: str, reason: str) -> None:
        """Count a host as lost if its agent is connected. The agent is connected again after another hello."""
        if host in self._agents:
            self._lose(host, reason)

    async def close(self) -> None:
        self._beating.cancel()
        self._stop_watching()
        self._gate.close()
        self._socket.close()
        self._authenticator.close()
        self._context.term()

    def _deliver(self, agent: _Agent, message: Message) -> None:
        data = agent.delivery.packed(message)
        self._send(agent, data)

    def _send(self, agent: _Agent, data: bytes) -> None:
        try:
            frames = [agent.address, data]
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            is_away = error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN)
            if not is_away:
                raise  # otherwise its connection is broken: it connects again, or its lease ends
        asyncio.get_running_loop().call_soon(self._read)

    def _read(self) -> None:
        while not self._socket.closed:
            try:
                message = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            address = message[0].bytes
            parts = message[1:]
            frames = [part.bytes for part in parts]
            if parts:
                peer = str(parts[0].get("Peer-Address"))
                size = sum(len(frame) for frame in frames)
                self._gate.delivered(peer, size)
            try:
                if len(frames) != 1:
                    raise WireError(f"{len(frames)} frames; a message has one")
                received = unpack(frames[0], CONTAINERS)
                self._take(address, received)
            except (WireError, KeyError, TypeError) as error:
                sender = self._names.get(address, "an agent")
                logger.warning("%s: not a message of an agent (%s)", sender, error)

    def _take(self, address: bytes, received: Message) -> None:
        name = self._names.get(address)
        now = asyncio.get_running_loop().time()
        if received["type"] == "hello":
            self._greet(address, received, now)
            return
        if name is None:
            return  # it was lost, and has not said hello again
        agent = self._agents[name]
        agent.last_contact = now
        message = agent.delivery.take(received)
        if message is None:
            return
        kind = message["type"]
        if kind == "connected":
            for data in agent.delivery.unconfirmed():
                self._send(agent, data)
        elif kind == "event":
            self._on_event(name, message)
        elif kind == "reply":
            number = message["id"]
            waiting = agent.waiting.get(number)
            if waiting is not None and not waiting.done():
                _resolve(waiting, name, message)

    def _greet(self, address: bytes, hello: Message, now: float) -> None:
        host = hello["host"]
        if not isinstance(host, str):
            raise WireError(f"the host is {quoted(host)}")
        protocol = hello["protocol"]
        if protocol != PROTOCOL:
            self._refusals[host] = f"speaks protocol {quoted(protocol)}, the orchestrator {PROTOCOL}"
            self._change.set()
            return
        known = self._agents.get(host)
        if known is not None:
            if known.address == address and known.hello == hello:
                return  # repeated, because its first connection broke
            self._lose(host, "its agent restarted")
        self._agents[host] = _Agent(address, hello, now)
        self._names[address] = host
        self._on_arrival(host)
        self._change.set()

    def _lose(self, host: str, reason: str) -> None:
        agent = self._agents.pop(host)
        del self._names[agent.address]
        for waiting in agent.waiting.values():
            if not waiting.done():
                error = LostError(f"{host}: {reason}")
                waiting.set_exception(error)
        now = asyncio.get_running_loop().time()
        silent = now - agent.last_contact
        self._on_loss(host, reason, silent)

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        slept = loop.time()
        while True:
            for agent in self._agents.values():
                beat = agent.delivery.packed_once({"type": "beat"})
                self._send(agent, beat)
            await asyncio.sleep(BEAT)
            # Time for which this process was paused must not count as silence of the agents.
            woken = loop.time()
            overslept = woken - slept - 2 * BEAT
            paused = max(0.0, overslept)
            slept = loop.time()
            for host, agent in list(self._agents.items()):
                agent.last_contact += paused
                silent = loop.time() - agent.last_contact
                if silent > self._lease:
                    self._lose(host, f"nothing was received from its agent for {self._lease:g} s")


def _resolve(waiting: asyncio.Future[Any], host: str, reply: Message) -> None:
    if "error" not in reply:
        waiting.set_result(reply["result"])
        return
    name = reply["kind"]
    if name in _ERRORS:
        kind = getattr(errors, name)
    else:
        kind = DriverError
    error = kind(f"{host}: {reply['error']}")
    waiting.set_exception(error)
