"""Four nodes on two hosts upload through one cell, whose queues are on a third host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.record.directory import RunDirectory
from orchestrator.record.rows import SHARED
from orchestrator.results.history import History
from orchestrator.results.traffic.media import channel_counters
from tests.e2e.harness import up
from tests.e2e.test_programs import PYTHON
from tests.swarm.engines import IMAGE, Engines
from tests.swarm.test_run import wait_until_nothing_is_left
from tests.tries import tries

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("on_engines")]

SIZE, DEVICES = 500_000, 4
SERVER = f"""\
import json, socket, sys, threading, time

listening = socket.create_server((sys.argv[1], 8000))
nodes = {{}}
for _ in range({DEVICES}):
    connection, _ = listening.accept()
    nodes[connection.recv(100).decode()] = connection

def receive(name):
    left = {SIZE}
    while left:
        left -= len(nodes[name].recv(min(left, 1 << 16)))
    took[name] = time.monotonic() - began

for round in (1, 2, 3):
    print("::edgebed", json.dumps({{"round": round, "phase": "start"}}), flush=True)
    if round > 1:
        time.sleep(1.5)  # until the fault of the round has taken effect
    took, began = {{}}, time.monotonic()
    threads = [threading.Thread(target=receive, args=(name,)) for name in nodes]
    for thread in threads:
        thread.start()
    for connection in nodes.values():
        connection.send(b"!")
    for thread in threads:
        thread.join()
    print(json.dumps(took), flush=True)
"""
CLIENT = f"""\
import socket, sys

connection = socket.create_connection(("cloud", 8000))
connection.send(sys.argv[1].encode())
while connection.recv(1):
    connection.sendall(bytes({SIZE}))
"""
SCENARIO = f"""\
driver: swarm
topology: {{cloud: true, edges: 0, devices: {DEVICES}}}
links: {{device-cloud: {{latency: 10ms}}}}
hosts: {{cloud: a, device: b, device-2: c, device-3: c}}
shared:
  cell: {{up: 8mbit, down: 50mbit, members: [device-*]}}
  other: {{up: 3mbit, down: 50mbit, buffer: 1s}}
faults:
  - {{round: 2, node: device-3, action: handover, to: other}}
  - {{round: 3, medium: cell, direction: up, action: degrade, rate: 6mbit}}
programs:
  cloud: {{command: "{PYTHON} server.py {{self}}", image: "{IMAGE}", ready: {{port: 8000}}, ends_the_run: true}}
  device: {{command: "{PYTHON} client.py {{name}}", image: "{IMAGE}", after: cloud}}
"""
MTU, ROUND_TRIP = 1450, 0.02
BITS = 8 * SIZE * (MTU + 14) / (MTU - 52)  # of an upload, with the headers of Ethernet, IP and TCP


def uploads(directory: RunDirectory) -> list[dict[str, float]]:
    """The seconds that each node's upload took, in each round."""
    lines = (directory.logs / "cloud.log").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def misfits(rounds: list[dict[str, float]]) -> list[str]:
    """The uploads that took less time than their parts of the cells need, or half as much again: other tests run beside
    this one. How exactly members share is measured in tests/orchestrator/fabric/test_trunk_media.py."""
    first, second, third = rounds
    expected = [
        (max(first.values()), DEVICES * BITS / 8e6),
        (min(first.values()), DEVICES * BITS / 8e6),
        (second.pop("device-3"), BITS / 3e6),
        (max(second.values()), (DEVICES - 1) * BITS / 8e6),
        (third.pop("device-3"), BITS / 3e6),
        (max(third.values()), (DEVICES - 1) * BITS / 6e6),
    ]
    far = [(took, time + ROUND_TRIP) for took, time in expected if not 0.95 < took / (time + ROUND_TRIP) < 1.5]
    return [f"{took:.3f} s, not {time:.3f} s" for took, time in far]


def test_uploads_from_two_hosts_share_a_cell(tmp_path: Path, engines: Engines) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "client.py").write_text(CLIENT)
    for _ in tries(4):  # a machine that is busy with something else delays packets
        result = up(tmp_path, SCENARIO, prefix=engines.manager.enter(), timeout=400)
        assert result.code in (0, 3), (result.summary, result.errors)  # 3: links were late
        directory = RunDirectory(Path(result.summary["run"]))
        if not (found := misfits(uploads(directory))):
            break
    assert found == []
    wait_until_nothing_is_left(engines, directory.run)
    assert [fault["at"] is not None for fault in result.summary["faults"]] == [True, True]
    with History.open(directory.path) as history:
        probes = [probe for probe in history.probes() if probe.link_class == SHARED]
        carried = {(row.channel, row.member): row.bytes for row in channel_counters(history)}
    assert {probe.source for probe in probes} == {"cell up", "cell down"}
    assert all(probe.verdict != "fail" for probe in probes if "saturated" not in probe.detail), probes
    assert carried["cell up", "device-0"] == pytest.approx(3 * BITS / 8, rel=0.05)
    assert carried["other up", "device-3"] == pytest.approx(2 * BITS / 8, rel=0.05)
