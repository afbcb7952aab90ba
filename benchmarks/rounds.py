"""The time of a round that only communicates, against bare ZeroMQ.

    python -m benchmarks.rounds

A coordinator sends a 6.65 MB model to ten processes over loopback, and each sends as much back: with the node's roles
(`publish`, `receive`, `send`, `gather`), and with bare pyzmq sockets that move the same bytes in the same pattern. Both
use CURVE and run in turns, without training. Prints one JSON object: mean seconds per round, including the first one,
and the median over the turns of their ratio, which a busy machine disturbs least.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import zmq

from benchmarks.common import MODEL_BYTES, Echo, model, processes, star
from node.assignment import Assignment
from node.messaging.sockets import set_client_keys, set_server_keys
from node.messaging.transport import ZmqTransport
from node.process.main import keep_freed_memory
from node.role import Role
from node.runtime.compute import WorkerCompute

CLIENTS = [f"device-{place}" for place in range(10)]
ROUNDS = 6  # per turn
TURNS = 4


def main() -> None:
    keep_freed_memory()
    raw: list[list[float]] = []
    ours: list[list[float]] = []
    for _ in range(TURNS):
        raw.append(_turn(_raw_client, _raw_coordinator))
        ours.append(_turn(_role_client, _role_coordinator))
    raw_round, our_round = (statistics.mean(second for turn in turns for second in turn) for turns in (raw, ours))
    ratio = statistics.median(sum(mine) / sum(bare) for mine, bare in zip(ours, raw, strict=True))
    figures = {
        "model_bytes": MODEL_BYTES,
        "clients": len(CLIENTS),
        "rounds": ROUNDS * TURNS,
        "raw_s_per_round": round(raw_round, 4),
        "roles_s_per_round": round(our_round, 4),
        "ratio": round(ratio, 3),
        "raw_first_round_s": round(statistics.mean(turn[0] for turn in raw), 4),
        "roles_first_round_s": round(statistics.mean(turn[0] for turn in ours), 4),
    }
    print(json.dumps(figures))


def _turn(client: Callable[[Assignment], None], coordinator: Callable[[Assignment], list[float]]) -> list[float]:
    assignments = star("cloud", CLIENTS, rounds=ROUNDS)
    with processes(client, [(assignments[name],) for name in CLIENTS]):
        return coordinator(assignments["cloud"])


# Bare sockets: one to receive, and one per peer to send


def _raw_sockets(assignment: Assignment, context: zmq.Context[zmq.Socket[bytes]]) -> list[zmq.Socket[bytes]]:
    pull = context.socket(zmq.PULL)
    set_server_keys(pull, assignment.keys)
    pull.bind(f"tcp://{assignment.host}:{assignment.port}")
    sockets = [pull]
    for peer in assignment.peers:
        push = context.socket(zmq.PUSH)
        set_client_keys(push, assignment.keys, peer.public_key)
        push.connect(f"tcp://{peer.host}:{peer.port}")
        sockets.append(push)
    return sockets


def _raw_client(assignment: Assignment) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pull, push = _raw_sockets(assignment, context)
    push.send(b"ready")
    for _ in range(1 + ROUNDS):
        push.send(pull.recv(copy=False), copy=False)
    context.destroy(linger=5000)


def _raw_coordinator(assignment: Assignment) -> list[float]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pull, *pushes = _raw_sockets(assignment, context)
    data = b"".join(tensor.tobytes() for tensor in model().values())
    for _ in pushes:
        pull.recv()
    for push in pushes:
        push.send(b"connected?")
    for _ in pushes:
        pull.recv()
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for push in pushes:
            push.send(data, copy=False)
        for _ in pushes:
            pull.recv(copy=False)
        seconds.append(time.perf_counter() - began)
    context.destroy(linger=0)
    return seconds


# The node's roles


class Silent:
    """A reporter that discards everything."""

    def event(self, name: str, *, round: int | None = None, **fields: Any) -> None: ...

    def metric(self, round: int | None, values: Mapping[str, Any]) -> None: ...


class Coordinator(Role):
    async def run(self) -> None:
        tensors = model()
        self.seconds: list[float] = []
        async for t in self.rounds():
            began = time.perf_counter()
            await self.publish(self.children, "model", tensors, owned=True, round=t)
            updates = await self.gather("update", self.children, round=t)
            self.seconds.append(time.perf_counter() - began)
            assert len(updates) == len(self.children)


def _role_client(assignment: Assignment) -> None:
    _perform(Echo, assignment)


def _role_coordinator(assignment: Assignment) -> list[float]:
    role = _perform(Coordinator, assignment)
    assert isinstance(role, Coordinator)
    return role.seconds


def _perform(role_class: type[Role], assignment: Assignment) -> Role:
    async def perform() -> Role:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        transport = ZmqTransport(assignment, assignment.node, context)
        role = role_class(assignment, transport, WorkerCompute(assignment.hardware, Silent()), Silent())
        await role.perform()
        context.destroy()
        return role

    return asyncio.run(perform())


if __name__ == "__main__":
    main()
