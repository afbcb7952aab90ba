"""A black hole for path MTU discovery: large packets vanish, small ones arrive, and TCP waits until it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from orchestrator.results.history import History
from tests.e2e.harness import up

pytestmark = pytest.mark.e2e

PYTHON = str(Path(sys.executable).resolve())
TRANSFER = 20_000  # bytes, in segments of 1448

SERVER = f"""\
import socket, threading

def echo_lengths(datagrams):
    while True:
        data, peer = datagrams.recvfrom(9000)
        datagrams.sendto(str(len(data)).encode(), peer)

datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("", 7000))
threading.Thread(target=echo_lengths, args=[datagrams], daemon=True).start()
server = socket.create_server(("", 7000))
print("ready", flush=True)
client, _ = server.accept()
client.recv({TRANSFER}, socket.MSG_WAITALL)
client.send(b"whole")
client.recv(1)
"""

COMMON = """\
import json, socket, sys, time

PROBE, DO = 10, 2  # IP_MTU_DISCOVER, IP_PMTUDISC_DO in <linux/in.h>
PATH_MTU = 14  # IP_MTU
HEADERS = 28  # bytes, of IPv4 and UDP

def passes(packet):
    # Whether a packet of so many bytes is answered. OSError if its sender gets an ICMP message.
    datagrams.send(bytes(packet - HEADERS))
    try:
        return int(datagrams.recv(100)) == packet - HEADERS
    except TimeoutError:
        return False

where = socket.getaddrinfo("cloud", 7000, socket.AF_INET, socket.SOCK_DGRAM)[0][4]
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.settimeout(0.3)
datagrams.connect(where)
datagrams.setsockopt(socket.IPPROTO_IP, PROBE, DO)

def report(**found):
    found["mtu"] = datagrams.getsockopt(socket.IPPROTO_IP, PATH_MTU)
    print("::edgebed", json.dumps(dict(event="seen") | found), flush=True)
"""

FROM_THE_START = COMMON + "report(fits=passes(1300), above=passes(1301))\n"

DURING_A_FAULT = (
    COMMON
    + f"""\
stream = socket.create_connection(where)
before = passes(1500)
while passes(1201):
    time.sleep(0.01)
fits, full = passes(1200), passes(1500)
stream.send(bytes({TRANSFER}))
stream.settimeout(1.5)
try:
    stalled = not stream.recv(10)
except TimeoutError:
    stalled = True
still = passes(1200) and not passes(1500)
stream.settimeout(60)
whole = stream.recv(10) == b"whole"
report(before=before, fits=fits, full=full, stalled=stalled, still=still, whole=whole, after=passes(1500))
"""
)


def test_large_packets_vanish_and_tcp_waits_for_the_end_of_the_fault(tmp_path: Path) -> None:
    server, at_start, in_fault = (json.dumps([PYTHON, "-c", code]) for code in (SERVER, FROM_THE_START, DURING_A_FAULT))
    scenario = f"""
topology: {{edges: 0, devices: 2}}
links:
  device-cloud: {{latency: 1ms}}
  device-1 <-> cloud: {{rate: 20mbit, drop_above: 1300}}
programs:
  cloud: {{command: {server}, ready: {{line: ready}}}}
  device-0: {{command: {in_fault}, after: cloud, ends_the_run: true}}
  device-1: {{command: {at_start}, after: cloud, expected_to_end: true}}
faults:
  - {{at: 2s, node: device-0, action: degrade, drop_above: 1200, for: 6s}}
engine: userspace
"""
    result = up(tmp_path, scenario)
    assert (result.code, result.summary["ended"]) == (0, "programs"), (result.errors, result.summary)
    with History.open(Path(result.summary["run"])) as history:
        seen = {event.node: event.data for event in history.events("seen")}
        audit = list(history.events("links looked at"))[-1].data
    assert seen["device-1"] == {"fits": True, "above": False, "mtu": 1500}
    assert seen["device-0"] == {
        "before": True,
        "fits": True,
        "full": False,
        "stalled": True,
        "still": True,
        "whole": True,
        "after": True,
        "mtu": 1500,  # no ICMP message has told the sender of a smaller one
    }
    # The probes of device-0 and the segments of TCP, each of which was sent again and again.
    assert audit["astray_count"] == 0
    assert audit["too_large"] > 10
    assert audit["most_too_large"]["link"] == "device-0 → cloud"
