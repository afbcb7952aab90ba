"""Where a control plane is reached; keys and strangers are tested with the planes that use them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import zmq
from zmq.utils import z85

from node.messaging.sockets import Authenticator, Context, Endpoint, watch_events
from tests.node.assignments import make_keys


def test_what_fits_is_left_as_it_is(tmp_path: Path) -> None:
    for address in ("tcp://10.0.0.1:7000", "ipc:///run/control"):
        endpoint = Endpoint(address)
        assert endpoint.address == address
        endpoint.close()


def test_a_long_path_is_reached_through_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    endpoint = Endpoint(f"ipc://{folder}/control")
    path = Path(endpoint.address.removeprefix("ipc://"))
    assert len(os.fsencode(path)) < 108  # unix(7)
    assert path.parent.resolve() == folder
    assert path.name == "control"
    endpoint.close()
    assert not path.parent.exists()


@pytest.mark.parametrize(("length", "fits"), [(107, True), (108, False)])  # unix(7)
def test_a_path_of_107_bytes_fits(tmp_path: Path, length: int, fits: bool) -> None:
    folder = tmp_path / "é"  # two bytes
    folder.mkdir()
    room = length - len(os.fsencode(folder)) - 1
    endpoint = Endpoint(f"ipc://{folder}/{'x' * room}")
    assert (endpoint.address == f"ipc://{folder}/{'x' * room}") is fits
    endpoint.close()
    endpoint.close()  # twice is once


def test_the_file_of_a_socket_is_removed_if_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "control"
    path.touch()
    for endpoint in (Endpoint(f"ipc://{path}"), Endpoint(f"ipc://{path}"), Endpoint("tcp://10.0.0.1:7000")):
        endpoint.remove()
        assert not path.exists()


@pytest.fixture
async def context() -> AsyncIterator[Context]:
    made: Context = zmq.Context()
    yield made
    made.destroy(linger=0)


async def asked(context: Context, *request: bytes) -> list[bytes]:
    """The answer to an authentication request (RFC 27 of ZeroMQ), whose last frames are mechanism and credentials."""
    client = context.socket(zmq.REQ)
    client.connect("inproc://zeromq.zap.01")
    client.send_multipart([b"1.0", b"7", b"domain", b"10.0.0.9", b"", *request])
    async with asyncio.timeout(10):
        while not client.poll(0):  # noqa: ASYNC110 - its descriptor is edge-triggered
            await asyncio.sleep(0.001)
    answer = client.recv_multipart()
    client.close(0)
    return answer


async def test_who_proves_a_listed_key_is_admitted(context: Context) -> None:
    known, unknown = make_keys().public, make_keys().public
    authenticator = Authenticator(context, {known: "edge-0"})
    key, other = z85.decode(known.encode()), z85.decode(unknown.encode())
    admitted = [b"1.0", b"7", b"200", b"OK", b"edge-0", b""]
    refused = [b"1.0", b"7", b"400", b"unknown key", b"", b""]
    assert await asked(context, b"CURVE", key) == admitted
    for request in ([b"CURVE", other], [b"CURVE", key, key], [b"CURVE"], [b"PLAIN", key], [b"NULL"]):
        assert await asked(context, *request) == refused
    authenticator.close()


async def test_strangers_are_reported_once_each_and_a_thousand_at_most(
    context: Context, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    authenticator = Authenticator(context, {})
    for number in (*range(500), *range(1500)):
        authenticator._report_refusal(number.to_bytes(2, "big"), b"10.0.0.9")
    assert len(caplog.records) == 1000
    authenticator.close()


@pytest.mark.parametrize("closed", [False, True])
async def test_the_events_of_an_open_socket_are_not_reported_any_more(context: Context, closed: bool) -> None:
    calls: list[str] = []
    socket = SimpleNamespace(
        closed=closed,
        monitor=lambda endpoint, events: None,
        disable_monitor=lambda: calls.append("disabled"),
    )
    stop = watch_events(context, socket, zmq.EVENT_ACCEPTED, lambda *_: None)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    stop()
    assert calls == ([] if closed else ["disabled"])
