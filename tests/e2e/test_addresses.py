"""A node gets another address while it runs: what its programs and peers see of it, and how training continues."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from orchestrator.results.history import History
from tests.e2e.engine import Place
from tests.e2e.harness import THREE, up

pytestmark = pytest.mark.e2e

PYTHON = str(Path(sys.executable).resolve())  # also in the image of the tests

SERVER = """\
import json, socket, time

def seen(**what):
    print("::edgebed", json.dumps(dict(event="seen") | what), flush=True)

def phase(number, name):
    print("::edgebed", json.dumps(dict(round=number, phase=name)), flush=True)

datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
datagrams.bind(("::", 7000))
print("ready", flush=True)
phase(1, "start")
before, peer = datagrams.recvfrom(100)
phase(1, "end")
phase(2, "start")  # the fault
while True:
    data, other = datagrams.recvfrom(100)
    if other[0] != peer[0]:
        break
names = set()
while other[0] not in names:  # names follow the addresses
    time.sleep(0.05)
    names.clear()
    for family in (socket.AF_INET, socket.AF_INET6):
        names.update(each[4][0] for each in socket.getaddrinfo("device-0", 7000, family, socket.SOCK_DGRAM))
datagrams.sendto(b"to the former address", peer)
datagrams.sendto(b"to the new address", other)
phase(2, "end")
seen(before=peer[0], after=other[0], names=sorted(names))
"""

CLIENT = """\
import json, socket, time

def datagrams(family):
    made = socket.socket(family, socket.SOCK_DGRAM)
    made.settimeout(0.1)
    return made

held = datagrams(socket.AF_INET6)  # bound to the first address by its first datagram
held.connect(("cloud", 7000))
held.send(b"first")
family, _, _, _, cloud = socket.getaddrinfo("cloud", 7000, socket.AF_INET6, socket.SOCK_DGRAM)[0]
refused, answer = "", b""
while not answer:
    time.sleep(0.05)
    fresh = datagrams(family)
    fresh.sendto(b"again", cloud)
    try:
        answer = fresh.recv(100)
    except TimeoutError:
        pass
try:
    held.send(b"from the first address")
    held.recv(100)
except OSError as error:
    refused = type(error).__name__
print("::edgebed", json.dumps(dict(event="answered", answer=answer.decode(), refused=refused)), flush=True)
"""


def gets_another_address(tmp_path: Path, driver: str, image: str) -> None:
    server, client = ([PYTHON, "-c", code] for code in (SERVER, CLIENT))  # without literal braces
    scenario = f"""
driver: {driver}
topology: {{edges: 0, devices: 1}}
probe: {{before: false}}
programs:
  cloud: {{command: {json.dumps(server)}, ready: {{line: ready}}{image}}}
  device: {{command: {json.dumps(client)}, after: cloud, ends_the_run: true{image}}}
faults:
  - {{round: 2, node: device-0, action: new-address}}
"""
    result = up(tmp_path, scenario)
    assert (result.code, result.summary["ended"]) == (0, "programs"), result.errors
    with History.open(Path(result.summary["run"])) as history:
        (changed,) = history.events("new address")
        (seen,) = history.events("seen")
        (answered,) = history.events("answered")
    # device-0 is the second node, with 10.77.0.2; the first new address is the last of 10.77.0.0/16.
    assert (changed.data["from"], changed.data["to"]) == ("10.77.0.2", "10.77.255.254")
    assert seen.data == {
        "before": changed.data["from_ipv6"],
        "after": changed.data["to_ipv6"],
        "names": sorted([changed.data["to"], changed.data["to_ipv6"]]),
    }
    assert answered.data["answer"] == "to the new address"
    assert answered.data["refused"]  # the kernel sends nothing from an address that the node has not


def test_programs_see_the_new_address(tmp_path: Path) -> None:
    gets_another_address(tmp_path, "namespaces", "")


@pytest.mark.usefixtures("engine")
def test_programs_in_containers_see_the_new_address(tmp_path: Path, place: Place) -> None:
    gets_another_address(tmp_path, "docker", f', image: "{place.image}"')


def test_training_continues_after_new_addresses(tmp_path: Path) -> None:
    scenario = THREE.replace("rounds: 3", "rounds: 6") + (
        "timeouts: {beat: 200ms, lost_after: 1s}\n"
        "faults:\n"
        "  - {round: 2, node: device-0, action: new-address}\n"
        "  - {round: 4, node: cloud, action: new-address}\n"
    )
    result = up(tmp_path, scenario)
    assert (result.code, result.summary["rounds"]) == (0, 6), (result.summary, result.errors)
    with History.open(Path(result.summary["run"])) as history:
        changed = {event.data["node"]: event.t for event in history.events("new address")}
        lost = {(event.node, event.data["peer"]) for event in history.events("lost")}
        joined = [(event.node, event.data["peer"], event.t) for event in history.events("joined")]
    assert list(changed) == ["device-0", "cloud"]
    assert lost >= {("cloud", "device-0"), ("device-0", "cloud"), ("cloud", "device-1"), ("device-1", "cloud")}
    for moved, peers in (("device-0", ["cloud"]), ("cloud", ["device-0", "device-1"])):
        for peer in peers:
            again = [t for node, other, t in joined if {node, other} == {moved, peer} and t > changed[moved]]
            assert again, (moved, peer)
