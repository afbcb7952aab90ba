"""A device moves to another edge: what programs see of it, and how training continues."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from orchestrator.results.history import History
from tests.e2e.engine import Place
from tests.e2e.harness import SMALL, up

pytestmark = pytest.mark.e2e

PYTHON = str(Path(sys.executable).resolve())  # also in the image of the tests

EDGE = """\
import socket

inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
inbox.bind(("", 7000))
print("ready", flush=True)
while True:
    data, peer = inbox.recvfrom(100)
    inbox.sendto(data, peer)
"""

DEVICE = """\
import json, socket, time

def answers(edge):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(0.3)
        asking.sendto(b"?", (edge, 7000))
        try:
            return asking.recv(10) == b"?"
        except TimeoutError:
            return False

before = [answers("edge-0"), answers("edge-1")]
while not answers("edge-1"):
    time.sleep(0.05)
after = [answers("edge-0"), answers("edge-1")]
print("::edgebed", json.dumps(dict(event="reached", before=before, after=after)), flush=True)
"""


def reaches_another_edge(tmp_path: Path, driver: str, image: str) -> None:
    edge, device = ([PYTHON, "-c", code] for code in (EDGE, DEVICE))  # without literal braces
    scenario = f"""
driver: {driver}
topology: {{cloud: false, edges: 2, devices_per_edge: [1, 0], mesh: false}}
probe: {{before: false}}
programs:
  edge: {{command: {json.dumps(edge)}, ready: {{line: ready}}{image}}}
  device: {{command: {json.dumps(device)}, after: edge, ends_the_run: true{image}}}
faults:
  - {{at: 3s, node: device-0-0, action: move, to: edge-1}}
"""
    result = up(tmp_path, scenario)
    assert (result.code, result.summary["ended"]) == (0, "programs"), result.errors
    with History.open(Path(result.summary["run"])) as history:
        (reached,) = history.events("reached")
        (moved,) = history.events("new edge")
        starts = [state for state in history.states() if (state.node, state.state) == ("device-0-0", "starting")]
    assert (reached.data["before"], reached.data["after"]) == ([True, False], [False, True])
    assert moved.data == {"node": "device-0-0", "from": "edge-0", "to": "edge-1"}
    assert len(starts) == 1  # its program goes on


def test_a_program_reaches_the_other_edge(tmp_path: Path) -> None:
    reaches_another_edge(tmp_path, "namespaces", "")


@pytest.mark.usefixtures("engine")
def test_a_program_in_a_container_reaches_the_other_edge(tmp_path: Path, place: Place) -> None:
    reaches_another_edge(tmp_path, "docker", f', image: "{place.image}"')


def test_the_other_edge_trains_with_the_device(tmp_path: Path) -> None:
    faults = "faults: [{round: 2, node: device-0-1, action: move, to: edge-1}]\n"
    result = up(tmp_path, SMALL.replace("rounds: 3", "rounds: 12") + faults)
    assert (result.code, result.summary["rounds"]) == (0, 12), (result.summary, result.errors)
    with History.open(Path(result.summary["run"])) as history:
        contributed = {(event.node, peer) for event in history.events("contributed") for peer in event.data["peers"]}
        left = {(event.node, event.data["peer"]) for event in history.events("left") if event.node == "edge-0"}
        missed = history.events("unanswered", "round_abandoned", "lost")
    assert {("edge-0", "device-0-1"), ("edge-1", "device-0-1")} <= contributed
    assert ("edge-0", "device-0-1") in left
    assert missed == []
