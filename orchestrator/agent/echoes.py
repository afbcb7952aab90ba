"""Echoes between two hosts, concurrent with the other work of their agents. They take little time of either.

A packet is a token, a number, and the time at which it was sent. The answer is the same packet, with the time for which
it was held added. The kernel takes the times of arrival (`netem.measurement.endpoints`). So an agent that is busy does
not appear as delay of the network.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import struct
import time

from netem.measurement.endpoints import open_datagrams, receive
from orchestrator.errors import HostError
from orchestrator.together import within

WAIT = 1.0  # s for the last answers

_PACKET = struct.Struct("!8sId")


class EchoResponder:
    """Answers until it is closed. HostError if this host does not have the ``address``."""

    def __init__(self, address: str) -> None:
        self.token = secrets.token_bytes(8)
        self._socket = open_datagrams()
        self._socket.setblocking(False)
        try:
            self._socket.bind((address, 0))
        except OSError as error:
            self._socket.close()
            raise HostError(
                f"cannot answer echoes at {address} ({error.strerror})",
                "is this the address at which the other hosts reach this one?",
            ) from None
        self.port: int = self._socket.getsockname()[1]
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket, self._answer)

    async def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def _answer(self) -> None:
        with contextlib.suppress(OSError):  # nothing more to read, or no way back
            while True:
                data, sender, arrived = receive(self._socket)
                if not _is_echo(data, self.token):
                    continue
                token, number, sent = _PACKET.unpack(data)
                held = time.time() - arrived
                answer = _PACKET.pack(token, number, sent + held)
                self._socket.sendto(answer, sender)


def _is_echo(data: bytes, token: bytes) -> bool:
    return len(data) == _PACKET.size and data.startswith(token)


async def ask(
    address: str,
    port: int,
    token: bytes,
    count: int,
    spacing: float,
) -> list[float]:
    """Request ``count`` echoes, one each ``spacing`` seconds. Returns the round trips in s of those that came."""
    times: dict[int, float] = {}
    complete = asyncio.Event()
    loop = asyncio.get_running_loop()

    def read() -> None:
        with contextlib.suppress(OSError):
            while True:
                data, _, arrived = receive(asking)
                if not _is_echo(data, token):
                    continue
                _, number, sent = _PACKET.unpack(data)
                times.setdefault(number, arrived - sent)
                if len(times) == count:
                    complete.set()

    with contextlib.closing(open_datagrams()) as asking:
        asking.setblocking(False)
        asking.connect((address, port))
        loop.add_reader(asking, read)
        try:
            for number in range(count):
                with contextlib.suppress(OSError):  # it counts as lost
                    packet = _PACKET.pack(token, number, time.time())
                    asking.send(packet)
                await asyncio.sleep(spacing)
            await within(WAIT, complete.wait())
        finally:
            loop.remove_reader(asking)
    return list(times.values())
