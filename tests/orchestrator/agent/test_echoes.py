from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator

import pytest

from orchestrator.agent import echoes
from orchestrator.agent.echoes import EchoResponder, ask
from orchestrator.errors import HostError

LOOPBACK = "127.0.0.1"
BUSY = 0.05  # s


class BusyResponder(EchoResponder):
    """Its agent does other work before it answers."""

    def _answer(self) -> None:
        time.sleep(BUSY)
        super()._answer()


@pytest.fixture
async def responder() -> AsyncIterator[EchoResponder]:
    made = BusyResponder(LOOPBACK)
    yield made
    await made.close()


async def test_echoes_come_back_and_a_busy_agent_is_no_slow_network(responder: EchoResponder) -> None:
    trips = await ask(LOOPBACK, responder.port, responder.token, 5, 0.01)
    assert len(trips) == 5
    assert all(0 <= each < BUSY for each in trips)


async def test_echoes_that_do_not_come_back(responder: EchoResponder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(echoes, "WAIT", 0.1)
    assert await ask(LOOPBACK, responder.port, b"another!", 2, 0.0) == []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
        nobody.bind((LOOPBACK, 0))
        port = nobody.getsockname()[1]
    assert await ask(LOOPBACK, port, responder.token, 2, 0.0) == []  # refused


async def test_other_packets_are_not_answered(responder: EchoResponder) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for data in (b"", responder.token, bytes(20), bytes(3000)):
            stranger.sendto(data, (LOOPBACK, responder.port))
        assert len(await ask(LOOPBACK, responder.port, responder.token, 1, 0.0)) == 1
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.recv(100)


async def test_an_address_of_another_host() -> None:
    with pytest.raises(HostError, match=r"cannot answer echoes at 192\.0\.2\.1 \(Cannot"):
        EchoResponder("192.0.2.1")
