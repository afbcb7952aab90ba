"""Nodes of two hosts share a cell whose queue is on the first host, with real packets over the trunk.

They are measured on this host: in a guest, 20 Mbit/s through two switches take ten times the processor time.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from netem.media.profile import CROSS_TRAFFIC, ChannelProfile, CrossTraffic
from netem.profile import LinkProfile
from orchestrator.fabric.base import SharesMedia
from tests.netem.measured import settled
from tests.netem.traffic import connection, datagrams, round_trips
from tests.orchestrator.fabric.hosts import CELL, Hosts
from tests.orchestrator.fabric.test_trunk import BUSY, namespaces, userspace

pytestmark = pytest.mark.netns

RATE = 20e6
DEVICES = [f"device-{number}" for number in range(4)]  # device-0 is on the cloud's host


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with namespaces():
        made = Hosts(tmp_path_factory.mktemp("cell"), userspace, devices=4, cell=ChannelProfile(RATE))
    with made:
        yield made


def carried(hosts: Hosts) -> tuple[float, dict[str, float]]:
    """The time, and the bytes that the cell has carried of each member until then."""
    rows = hosts.do(hosts.fabric("cloud").counters()).channels
    return time.monotonic(), {str(row["member"]): float(row["bytes"]) for row in rows}


def upload(hosts: Hosts, devices: Sequence[str] = DEVICES, seconds: float = 1.5, skip: float = 0.5) -> dict[str, float]:
    """What the cell carries of each member in bit/s while devices send, ``skip`` seconds after the start."""
    ends = [connection(hosts, device, "cloud") for device in devices]
    stop = time.monotonic() + seconds

    def feed(near: socket.socket) -> None:
        near.settimeout(0.2)
        while time.monotonic() < stop:
            with contextlib.suppress(TimeoutError):
                near.send(bytes(1 << 16))

    def sink(far: socket.socket) -> None:
        far.settimeout(0.2)
        while time.monotonic() < stop:
            with contextlib.suppress(TimeoutError):
                far.recv(1 << 20)

    threads = [
        threading.Thread(target=work, args=(end,))
        for pair in ends
        for work, end in zip((feed, sink), pair, strict=True)
    ]
    for thread in threads:
        thread.start()
    time.sleep(skip)
    began, before = carried(hosts)
    time.sleep(seconds - skip - 0.1)
    ended, after = carried(hosts)
    for thread in threads:
        thread.join()
    for end in (end for pair in ends for end in pair):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # drop what is queued
        end.close()
    return {member: 8 * (after[member] - before.get(member, 0)) / (ended - began) for member in after}


def check_shares(hosts: Hosts, devices: Sequence[str]) -> None:
    rates: dict[str, float] = {}

    def furthest() -> float:
        rates.update(upload(hosts, devices))
        return max(abs(rates[device] * len(devices) / RATE - 1) for device in devices)

    settled(furthest, 0.0, 0.05)
    assert sum(rates.values()) == pytest.approx(RATE, rel=0.02)


def test_uploads_from_two_hosts_share_the_rate(hosts: Hosts) -> None:
    check_shares(hosts, DEVICES)


def test_the_cell_moves_with_the_node_above_it(tmp_path: Path) -> None:
    """The first host is lost, and the cloud moves to the host of device-0, whose link then no longer crosses hosts."""
    homes = {"cloud": 0, "device-0": 1, "device-1": 2, "device-2": 2}
    with namespaces():
        made = Hosts(tmp_path, userspace, homes=homes, cell=ChannelProfile(RATE))
    with made:
        assert datagrams(made, "device-0", "cloud", 10) == list(range(10))
        made.move("cloud", 1)
        check_shares(made, DEVICES[:3])


def test_a_link_has_its_latency_and_is_counted_once(hosts: Hosts) -> None:
    settled(lambda: statistics.median(round_trips(hosts, "device-1", "cloud", 60)), 0.020, 0.020 + BUSY)
    before = _row(hosts, "device-1")
    assert datagrams(hosts, "device-1", "cloud", 200) == list(range(200))
    assert _row(hosts, "device-1")["delivered"] - before["delivered"] == 200
    away = hosts.do(hosts.fabric("device-1").counters())
    assert all(row["target"] != "cloud" for row in away.links)
    assert (away.sent_to or {})["cloud"] >= 200


def test_it_can_be_cut_and_changed_where_it_is_shaped(hosts: Hosts) -> None:
    fabric = hosts.fabric("cloud")
    hosts.do(fabric.cut("device-1", "cloud"))
    assert datagrams(hosts, "device-1", "cloud", 20) == []
    assert len(datagrams(hosts, "device-2", "cloud", 20)) == 20
    hosts.do(fabric.restore("device-1", "cloud"))
    hosts.do(fabric.change("device-1", "cloud", LinkProfile(latency=0.05)))
    settled(lambda: statistics.median(round_trips(hosts, "device-1", "cloud", 30)), 0.060, 0.060 + BUSY)
    hosts.do(fabric.change("device-1", "cloud", LinkProfile(latency=0.01)))


def test_cross_traffic_takes_its_part(hosts: Hosts) -> None:
    fabric = hosts.fabric("cloud")
    assert isinstance(fabric, SharesMedia)
    hosts.do(fabric.occupy(CELL, CrossTraffic("constant", 2e6), 7))
    settled(lambda: upload(hosts)[CROSS_TRAFFIC], 1.9e6, 2.1e6)
    hosts.do(fabric.occupy(CELL, None))


def _row(hosts: Hosts, source: str) -> dict[str, Any]:
    rows = hosts.do(hosts.fabric("cloud").counters()).links
    return next(dict(row) for row in rows if (row["source"], row["target"]) == (source, "cloud"))
