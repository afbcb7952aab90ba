"""What a hostile machine sends: ``python -m tests.e2e.flood WHO ASSIGNMENT COUNT RATE SEED``, run in a node's network.

WHO is a *stranger* without keys, who sends garbage and half handshakes to the data port of the assignment's parent and
to the control socket; or a *peer* or a *node* with the keys of the assignment: the one sends mutations of real messages
over the data plane, the other what is no message over the control plane. COUNT frames leave at RATE a second; the same
SEED sends the same ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import numpy as np
import zmq

from node.assignment import Assignment, PeerAddress
from node.messaging.delivery.packet import RUNTIME_KINDS, PacketType, prefix
from node.messaging.sockets import Endpoint, set_client_keys
from node.messaging.wire import PROTOCOL, Message, encode

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)  # RFC 23 of ZeroMQ
HUGE = struct.pack(">Q", 1 << 40)
BREAKING = 2000  # frames between two that break a stream; a peer that is there and says nothing is waited for
PATIENCE = 30_000  # ms until a frame must be taken

Frames = list[bytes]
Mutation = Callable[[random.Random], Frames]


def paced(frames: Iterator[Any], count: int, rate: float) -> Iterator[Any]:
    began = time.monotonic()
    for number, frame in zip(range(count), frames, strict=False):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        yield frame


def garbage(draw: random.Random) -> bytes:
    """The first words of somebody who has no keys."""
    whole = GREETING + b"\x04\xc8\x05HELLO\x01\x00" + bytes(72) + draw.randbytes(122)
    sayings = [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        draw.randbytes(draw.randrange(1, 2000)),
        GREETING[: draw.randrange(1, 64)],
        GREETING,
        GREETING.replace(b"CURVE", b"NULL\0"),
        whole,
        whole[: draw.randrange(64, len(whole))],
        GREETING + b"\x06" + HUGE + draw.randbytes(500),
        GREETING + b"\x02" + HUGE,
        GREETING + b"\x04\x00" * 50,
    ]
    return draw.choice(sayings)


def stranger(assignment: Assignment, count: int, rate: float, draw: random.Random) -> int:
    parent = parent_of(assignment)
    path = assignment.control_endpoint.removeprefix("ipc://")
    held: list[socket.socket] = []
    for said in paced((garbage(draw) for _ in iter(int, 1)), count, rate):
        targets: list[tuple[int, Any]] = [(socket.AF_INET, (parent.host, parent.port)), (socket.AF_UNIX, path)]
        family, where = draw.choice(targets)
        opened = socket.socket(family)
        opened.settimeout(5.0)
        with contextlib.suppress(OSError):  # whoever is refused or thrown out comes again
            opened.connect(where)
            opened.sendall(said)
        held.append(opened)
        if len(held) > 200:
            held.pop(draw.randrange(len(held))).close()
    return count


class Stream:
    """Packets of one stream to the parent; most are numbered as they must be, so that what is in them is looked at."""

    def __init__(self, name: str, draw: random.Random) -> None:
        self.name, self.draw = name, draw
        self.stream, self.number = draw.randrange(1 << 20), 0
        self.header, parts = encode(self.update())
        self.body = b"".join(parts)

    def update(self, kind: str = "update", round: int | None = 1) -> Message:
        tensors = {"w": np.ones((16, 8), np.float32), "b": np.zeros(8, np.float32)}
        return Message(kind, self.name, round, {"samples": 50}, tensors)

    def packet(self, type: int, content: bytes = b"", piece: bytes | None = None) -> Frames:
        first = struct.pack(">BIQ", type, self.stream, self.number) + content
        self.number += 1
        return [first] if piece is None else [first, piece]

    def hello(self, **said: Any) -> Frames:
        self.stream, self.number = self.stream + 1, 0
        saying = {"protocol": PROTOCOL, "incarnation": "flood", "heard": None} | said
        return self.packet(PacketType.HELLO, msgpack.packb(saying))

    def message(self, message: Message) -> Frames:
        header, parts = encode(message)
        return self.packet(PacketType.MESSAGE, header, b"".join(parts) if parts else None)

    def claiming(self, **said: Any) -> Frames:
        """A header with other values than it should have."""
        header = msgpack.unpackb(self.header) | said
        return self.packet(PacketType.MESSAGE, msgpack.packb(header), self.body)

    def layout(self, *specifications: Any) -> Frames:
        return self.claiming(layout=msgpack.packb(list(specifications)))

    def flipped(self) -> Frames:
        header = bytearray(self.header)
        for _ in range(self.draw.randrange(1, 4)):
            header[self.draw.randrange(len(header))] ^= 1 << self.draw.randrange(8)
        return self.packet(PacketType.MESSAGE, bytes(header), self.body)

    def mutation(self) -> Frames:
        draw = self.draw
        number = draw.randrange(1 << 30)
        plain: list[Any] = [None, -1, 1 << 40, (1 << 64) - 1, 1.5, "x" * draw.randrange(300), b"x", [], {}, True]
        nested: list[Any] = [[]] * draw.randrange(30_000)
        odd: Any = draw.choice([*plain, nested, msgpack.ExtType(5, b"x"), msgpack.Timestamp(1)])
        mutations: list[Callable[[], Frames]] = [
            self.flipped,
            self.flipped,
            self.flipped,
            lambda: self.packet(PacketType.MESSAGE, self.header[: draw.randrange(len(self.header))], self.body),
            lambda: self.packet(PacketType.MESSAGE, self.header, self.body[: draw.randrange(512)]),
            lambda: self.packet(PacketType.MESSAGE, self.header, self.body + draw.randbytes(8)),
            lambda: self.packet(PacketType.MESSAGE, self.header),
            lambda: self.packet(PacketType.MESSAGE, draw.randbytes(draw.randrange(400))),
            lambda: self.packet(PacketType.CHUNK, b"", draw.randbytes(draw.randrange(4000))),
            lambda: self.claiming(round=odd),
            lambda: self.claiming(kind=odd),
            lambda: self.claiming(fields=odd),
            lambda: self.claiming(sender=odd),
            lambda: self.claiming(layout=odd),
            lambda: self.claiming(protocol=odd),
            lambda: self.claiming(fields={"samples": odd}),
            lambda: self.claiming(**{str(number): odd}),
            lambda: self.claiming(kind=f"kind-{number}"),
            lambda: self.claiming(kind="finish"),
            lambda: self.claiming(kind=draw.choice(sorted(RUNTIME_KINDS))),
            lambda: self.claiming(kind="model"),
            lambda: self.claiming(sender="cloud"),
            lambda: self.claiming(round=number % (1 << 31)),
            lambda: self.layout(["w", "<i4", [16, 8]], ["b", "<f4", [8]]),
            lambda: self.layout(["w", "<f4", [8, 16]], ["b", "<f4", [8]]),
            lambda: self.layout(["w", "<f4", [136]]),
            lambda: self.layout(["w", "O", [136]]),
            lambda: self.layout(["w", "<f4", [1 << 28]]),
            lambda: self.layout(["w", "|u1", [(1 << 30) - 8]]),
            lambda: self.layout(["w", "<f4", [1 << 62, 1 << 62]]),
            lambda: self.layout(["w", "<f4", [0, 1 << 28]]),
            lambda: self.layout(*([f"{number}-{each}", "|u1", []] for each in range(2000))),
            lambda: self.message(self.update()),
            lambda: self.message(self.update("update", number % 10_000)),
            lambda: self.packet(PacketType.BEAT),
            lambda: [],
            lambda: [b""],
            lambda: [b"x"] * draw.randrange(3, 30),
            lambda: [draw.randbytes(13)],
            lambda: [prefix(PacketType.MESSAGE, self.stream - 1, 0) + self.header],
            lambda: [struct.pack(">BIQ", draw.randrange(6, 256), self.stream, self.number)],
        ]
        return draw.choice(mutations)()

    def breaking(self) -> Frames:
        draw = self.draw
        mutations: list[Callable[[], Frames]] = [
            lambda: self.packet(PacketType.GOODBYE),
            lambda: self.hello(incarnation=f"flood-{draw.random()}"),
            lambda: self.hello(incarnation="x" * 100_000),
            lambda: self.hello(protocol=9),
            lambda: self.hello(heard=[]),
            lambda: [prefix(PacketType.MESSAGE, self.stream, 1 << 60) + self.header],
        ]
        return draw.choice(mutations)()

    def frames(self) -> Iterator[Frames]:
        yield self.hello()
        for number in range(1, sys.maxsize):
            if number % BREAKING == 0:
                yield self.breaking()
                yield self.hello()
            elif number % 5 == 0:
                yield self.message(self.update("update", None))  # an answer to whatever is asked, so that nobody waits
            else:
                yield self.mutation()


def peer(assignment: Assignment, count: int, rate: float, draw: random.Random) -> int:
    parent = parent_of(assignment)
    with zmq.Context() as context, context.socket(zmq.PUSH) as pushing:
        pushing.linger, pushing.sndtimeo = 2000, PATIENCE
        set_client_keys(pushing, assignment.keys, parent.public_key)
        pushing.connect(f"tcp://{parent.host}:{parent.port}")
        for frames in paced(Stream(assignment.node, draw).frames(), count, rate):
            pushing.send_multipart(frames or [b""])
    return count


def said_by_node(draw: random.Random) -> Iterator[Frames]:
    """What is no message: what is one, and holds what it should not, is for who reads it."""
    odd_types: list[Any] = [None, 1, 1.5, [], {}, b"beat", [[]] * 100_000]
    known: list[Frames] = [
        [b""],
        [b"two", b"frames"],
        [b"\xc1"],
        [b"\x91" * 2000],
        [msgpack.packb([1])],
        [msgpack.packb({})],
        [msgpack.packb({"type": "beat"})[:-1]],
        [msgpack.packb({"type": "register", "node": "cloud"})],
        *([msgpack.packb({"type": odd})] for odd in odd_types),
    ]
    too_long = [msgpack.packb({"type": "beat", "x": "x" * 5_000_000})]
    while True:
        other = [draw.randbytes(draw.randrange(200))] if draw.random() < 0.99 else too_long
        yield draw.choice([*known, other])


def node(assignment: Assignment, count: int, rate: float, draw: random.Random) -> int:
    endpoint = Endpoint(assignment.control_endpoint)
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealing:
        dealing.linger, dealing.sndtimeo = 2000, PATIENCE
        set_client_keys(dealing, assignment.keys, assignment.control_key)
        dealing.connect(endpoint.address)
        for frames in paced(said_by_node(draw), count, rate):
            dealing.send_multipart(frames)
    endpoint.close()
    return count


def parent_of(assignment: Assignment) -> PeerAddress:
    (parent,) = (each for each in assignment.peers if each.relation == "parent")
    return parent


def main(who: str, assignment: str, count: str, rate: str, seed: str) -> None:
    os.nice(19)  # who attacks has a machine of his own
    began = time.monotonic()
    attack = {"stranger": stranger, "peer": peer, "node": node}[who]
    sent = attack(Assignment.load(assignment), int(count), float(rate), random.Random(f"{who} {seed}"))
    print(json.dumps({"sent": sent, "seconds": time.monotonic() - began}))


if __name__ == "__main__":
    main(*sys.argv[1:])
