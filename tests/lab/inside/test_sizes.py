"""`drop_above` in the kernel engine: by the size of the IP packet, without a message, changed in place."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from netem.profile import LinkProfile
from tests.lab.inside.stage import Stage
from tests.lab.inside.stream import stream
from tests.netem.traffic import segments_of_one_call

Note = Callable[[str, object, object], None]
UP = ("device-0", "cloud")
LARGEST = 1200
FITTING = LARGEST - 28  # bytes of a datagram's payload, less the headers of IPv4 and UDP
COUNT = 20
NARROW = LinkProfile(latency=0.01, drop_above=LARGEST)


def arrived(stage: Stage, size: int) -> tuple[int, int, int]:
    """Of COUNT datagrams with this payload: how many arrive, are counted as lost, and of these as too large."""
    before = stage.counters(*UP)
    received = stream(stage, *UP, count=COUNT, size=size, settle=0.5).counts()["received"]
    after = stage.counters(*UP)
    return received, after["lost"] - before["lost"], after["too_large"] - before["too_large"]


def test_packets_above_the_limit_vanish(stage: Stage, note: Note) -> None:
    stage.shape(*UP, NARROW)
    assert arrived(stage, FITTING) == (COUNT, 0, 0)
    assert arrived(stage, FITTING + 1) == (0, COUNT, COUNT)
    stage.shape(*UP, LinkProfile(latency=0.01))
    assert arrived(stage, FITTING + 1) == (COUNT, 0, 0)
    note(f"datagrams of {LARGEST} and {LARGEST + 1} bytes over drop_above: {LARGEST}", "20, 0", "20, 0")


def test_the_limit_is_next_to_a_loss_and_a_buffer(stage: Stage) -> None:
    stage.shape(*UP, NARROW.merged(loss=1.0, rate=1e6))
    assert arrived(stage, FITTING) == (0, COUNT, 0)
    assert arrived(stage, FITTING + 1) == (0, COUNT, COUNT)
    counters = stage.counters(*UP)
    assert counters["lost"] - counters["too_large"] <= counters["drawn"]


def test_the_sender_gets_no_message(stage: Stage) -> None:
    stage.shape(*UP, NARROW)
    with stage.bound(UP[0], socket.SOCK_DGRAM) as near, stage.bound(UP[1], socket.SOCK_DGRAM) as far:
        near.connect(far.getsockname())
        near.settimeout(1.0)
        near.send(bytes(FITTING + 1))
        with pytest.raises(TimeoutError):  # an ICMP message would be an error of the socket
            near.recv(1)


def test_segments_of_one_call_are_judged_one_by_one(stage: Stage) -> None:
    stage.shape(*UP, NARROW)
    assert len(segments_of_one_call(stage, *UP, 10, FITTING)) == 10
    assert segments_of_one_call(stage, *UP, 10, FITTING + 1) == []


def test_ipv6_has_the_same_limit(stage: Stage) -> None:
    stage.shape(*UP, NARROW)
    of_ipv6 = LARGEST - 48  # less the headers of IPv6 and UDP
    with stage.bound_to_ipv6(UP[0], socket.SOCK_DGRAM) as near, stage.bound_to_ipv6(UP[1], socket.SOCK_DGRAM) as far:
        far.settimeout(1.0)
        near.sendto(bytes(of_ipv6 + 1), far.getsockname())
        near.sendto(bytes(of_ipv6), far.getsockname())
        assert len(far.recv(2000)) == of_ipv6
