"""The speed of the transport, against bare ZeroMQ.

    python -m benchmarks.transport

Sends 6.65 MB models one way between two processes over loopback, with a few in flight at any time, and small messages
back and forth: with the node's `ZmqTransport` and with bare pyzmq sockets. Both use CURVE and run in turns. Prints one
JSON object: medians over the turns of the rates (MB/s), of their ratio, which a busy machine disturbs least, and of the
one-way delays of small messages (µs).
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable

import zmq

from benchmarks.common import MODEL_BYTES, model, processes, star
from node.assignment import Assignment
from node.messaging.delivery.association import Joined, Received
from node.messaging.sockets import set_client_keys, set_server_keys
from node.messaging.transport import ZmqTransport
from node.messaging.wire import Message, frozen
from node.process.main import keep_freed_memory

TURNS = 5
MODELS = 40  # per turn, including the warm-up
WARM_UP = 10
UNDER_WAY = 3  # models sent and not yet acknowledged
PINGS = 500


def main() -> None:
    keep_freed_memory()
    raw, ours = [], []
    for _ in range(TURNS):
        raw.append(_turn(_raw_echo, _raw_measure))
        ours.append(_turn(_transport_echo, _transport_measure))
    raw_rate, raw_delay = (statistics.median(values) for values in zip(*raw, strict=True))
    our_rate, our_delay = (statistics.median(values) for values in zip(*ours, strict=True))
    ratio = statistics.median(mine[0] / bare[0] for mine, bare in zip(ours, raw, strict=True))
    figures = {
        "model_bytes": MODEL_BYTES,
        "raw_mb_per_s": round(raw_rate / 1e6, 1),
        "transport_mb_per_s": round(our_rate / 1e6, 1),
        "rate_ratio": round(ratio, 3),
        "raw_small_message_us": round(raw_delay * 1e6),
        "transport_small_message_us": round(our_delay * 1e6),
        "turns": TURNS,
    }
    print(json.dumps(figures))


def _turn(
    echo: Callable[[Assignment], None], measure: Callable[[Assignment], tuple[float, float]]
) -> tuple[float, float]:
    """(bytes per second of models, one-way delay of a small message in seconds)."""
    assignments = star("source", ["sink"])
    with processes(echo, [(assignments["sink"],)]):
        return measure(assignments["source"])


# The sink acknowledges each model, then echoes pings.


def _raw_pair(assignment: Assignment, context: zmq.Context[zmq.Socket[bytes]]) -> tuple[zmq.Socket[bytes], ...]:
    (peer,) = assignment.peers
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    set_server_keys(pull, assignment.keys)
    set_client_keys(push, assignment.keys, peer.public_key)
    pull.bind(f"tcp://{assignment.host}:{assignment.port}")
    push.connect(f"tcp://{peer.host}:{peer.port}")
    return pull, push


def _raw_echo(assignment: Assignment) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pull, push = _raw_pair(assignment, context)
    for _ in range(MODELS):
        pull.recv(copy=False)
        push.send(b"got it")
    for _ in range(PINGS):
        push.send(pull.recv())
    context.destroy(linger=1000)


def _raw_measure(assignment: Assignment) -> tuple[float, float]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pull, push = _raw_pair(assignment, context)
    data = b"".join(tensor.tobytes() for tensor in model().values())
    began = 0.0
    for count in range(MODELS + UNDER_WAY):
        if count == WARM_UP + UNDER_WAY:
            began = time.perf_counter()
        if count < MODELS:
            push.send(data, copy=False)
        if count >= UNDER_WAY:
            pull.recv()
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(PINGS):
        push.send(b"ping")
        pull.recv()
    delay = (time.perf_counter() - began) / PINGS / 2
    context.destroy(linger=1000)
    return (MODELS - WARM_UP) * len(data) / seconds, delay


def _transport_echo(assignment: Assignment) -> None:
    async def work() -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        transport = ZmqTransport(assignment, "sink", context)
        await transport.start()
        for _ in range(MODELS):
            await _message(transport)
            await transport.send(["source"], Message("got-it", "sink"))
        for _ in range(PINGS):
            await _message(transport)
            await transport.send(["source"], Message("ping", "sink"))
        await transport.close(1.0)
        context.destroy()

    asyncio.run(work())


def _transport_measure(assignment: Assignment) -> tuple[float, float]:
    async def work() -> tuple[float, float]:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        transport = ZmqTransport(assignment, "source", context)
        await transport.start()
        while not isinstance(await transport.receive(), Joined):
            pass
        message = frozen(Message("model", "source", None, {}, model()), owned=True)
        began = 0.0
        for count in range(MODELS + UNDER_WAY):
            if count == WARM_UP + UNDER_WAY:
                began = time.perf_counter()
            if count < MODELS:
                await transport.send(["sink"], message)
            if count >= UNDER_WAY:
                await _message(transport)
        seconds = time.perf_counter() - began
        began = time.perf_counter()
        for _ in range(PINGS):
            await transport.send(["sink"], Message("ping", "source"))
            await _message(transport)
        delay = (time.perf_counter() - began) / PINGS / 2
        await transport.close(1.0)
        context.destroy()
        return (MODELS - WARM_UP) * MODEL_BYTES / seconds, delay

    return asyncio.run(work())


async def _message(transport: ZmqTransport) -> Message:
    while True:
        event = await transport.receive()
        if isinstance(event, Received):
            return event.message


if __name__ == "__main__":
    main()
