"""A device that moves between edges in a simulated run."""

from __future__ import annotations

from pathlib import Path

from tests.orchestrator.drivers.sim.harness import simulate
from tests.orchestrator.drivers.sim.test_simulation import SMALL

FAULTS = """\
faults:
  - {round: 2, node: device-0-1, action: move, to: edge-1}
  - {round: 4, node: device-0-0, action: move, to: edge-1}
  - {round: 5, node: device-0-1, action: move, to: edge-0}
"""


def test_edges_train_with_the_devices_that_are_there(tmp_path: Path) -> None:
    run = simulate(tmp_path, SMALL.replace("rounds: 6", "rounds: 7") + FAULTS)
    assert (run.code, run.summary["rounds"]) == (0, 7), (run.summary, run.errors)
    with run.history() as history:
        moves = [(event.data["node"], event.data["from"], event.data["to"]) for event in history.events("new edge")]
        contributed = {(event.node, peer) for event in history.events("contributed") for peer in event.data["peers"]}
        missed = history.events("unanswered", "lost")
        abandoned = {(event.node, event.round) for event in history.events("round_abandoned")}
    assert moves == [
        ("device-0-1", "edge-0", "edge-1"),
        ("device-0-0", "edge-0", "edge-1"),
        ("device-0-1", "edge-1", "edge-0"),
    ]
    assert {("edge-1", "device-0-0"), ("edge-1", "device-0-1")} <= contributed
    assert missed == []  # no edge waits for a device that is elsewhere
    assert abandoned == {("edge-0", 4)}  # it has no device then
    assert run.summary["verdict"] == "pass"
