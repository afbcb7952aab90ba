"""What programs see of the MTU of their link: the size of datagrams, the segments of TCP, and the address family."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from orchestrator.results.history import History
from tests.e2e.harness import up

pytestmark = pytest.mark.e2e

PYTHON = str(Path(sys.executable).resolve())

SERVER = """\
import socket, threading

def echo_lengths(datagrams):
    while True:
        data, peer = datagrams.recvfrom(9000)
        datagrams.sendto(str(len(data)).encode(), peer)

datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
datagrams.bind(("::", 7000))
threading.Thread(target=echo_lengths, args=[datagrams], daemon=True).start()
server = socket.create_server(("::", 7000), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
while True:
    client, _ = server.accept()
    size = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    client.sendall(bytes([size // 256, size % 256]) + bytes(100_000))
    client.close()
"""

CLIENT = """\
import json, socket

PROBE, DO = 10, 2  # IP_MTU_DISCOVER, IP_PMTUDISC_DO in <linux/in.h>
PATH_MTU = 14  # IP_MTU

def answer(datagrams, size):
    datagrams.send(bytes(size))
    return int(datagrams.recv(100))

family = socket.getaddrinfo("cloud", 7000, type=socket.SOCK_DGRAM)[0][0]
where = socket.getaddrinfo("cloud", 7000, socket.AF_INET, socket.SOCK_DGRAM)[0][4]
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.settimeout(10)
datagrams.connect(where)
fragmented = answer(datagrams, 4000)
datagrams.setsockopt(socket.IPPROTO_IP, PROBE, DO)
mtu = datagrams.getsockopt(socket.IPPROTO_IP, PATH_MTU)
whole, refused = answer(datagrams, mtu - 28), ""
try:
    datagrams.send(bytes(mtu - 27))
except OSError as error:
    refused = error.strerror
with socket.create_connection(where) as stream:
    near = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    received = b""
    while data := stream.recv(65536):
        received += data
found = dict(family=family.name, fragmented=fragmented, mtu=mtu, whole=whole, refused=refused, near=near)
found |= dict(far=received[0] * 256 + received[1], received=len(received))
print("::edgebed", json.dumps(dict(event="seen") | found), flush=True)
"""


def test_programs_see_the_mtu_of_their_link(tmp_path: Path) -> None:
    server, client = (json.dumps([PYTHON, "-c", code]) for code in (SERVER, CLIENT))  # without literal braces
    scenario = f"""
topology: {{edges: 0, devices: 3}}
links:
  device-cloud: {{latency: 1ms}}
  device-0 <-> cloud: {{mtu: 1300}}
  device-1 <-> cloud: {{mtu: 1000}}
programs:
  cloud: {{command: {server}, ready: {{line: ready}}}}
  device: {{command: {client}, after: cloud, ends_the_run: true}}
"""
    result = up(tmp_path, scenario)
    assert (result.code, result.summary["ended"]) == (0, "programs"), (result.errors, result.summary)
    with History.open(Path(result.summary["run"])) as history:
        seen = {event.node: event.data for event in history.events("seen")}
    mtus = {"device-0": 1300, "device-1": 1000, "device-2": 1500}
    assert seen.keys() == mtus.keys()
    for node, mtu in mtus.items():
        assert seen[node] == {
            "family": "AF_INET" if mtu < 1280 else "AF_INET6",
            "fragmented": 4000,
            "mtu": mtu,
            "whole": mtu - 28,  # less the headers of IPv4 and UDP
            "refused": "Message too long",
            "near": mtu - 52,  # less the headers of IPv4 and TCP, and its timestamps
            "far": mtu - 52,
            "received": 100_002,
        }
