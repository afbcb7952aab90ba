"""Links over time under the `sim` driver: on the virtual clock, exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.orchestrator.drivers.sim.harness import Simulated, simulate

SCENARIO = """\
seed: 7
algorithm: {name: hierfavg, rounds: 6, kappa1: 4, kappa2: 1, learning_rate: 0.2}
data: {dataset: digits, partition: iid}
model: mlp
topology: {edges: 2, devices_per_edge: 2}
hardware: {device: {speed: 0.01}}
links:
  device-edge: {latency: 2ms, rate: 50mbit, schedule: {trace: trace.txt}}
  edge-cloud: {latency: 10ms, schedule: {ramp: [{at: 1s, over: 4s, to: {latency: 300ms}}]}}
  device-0-1 <-> edge-0: {schedule: {handover: [{at: 1.25s, interruption: 300ms, profile: 5g}]}}
faults:
  - {at: 2s, node: edge-1, action: degrade, loss: 1%, for: 2s}
"""


def run(tmp_path: Path, *arguments: str) -> Simulated:
    (tmp_path / "trace.txt").write_text("".join(f"{ms}\n" for ms in range(3, 2000, 3)))
    return simulate(tmp_path, SCENARIO, *arguments)


def events(result: Simulated, name: str) -> list[dict[str, Any]]:
    with result.history() as history:
        return [{"t": event.t, **event.data} for event in history.events(name)]


def test_every_change_is_made_at_its_time(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.code == 0, (result.errors, result.summary["checks"])
    (began,) = (event["t"] for event in events(result, "training"))
    changes = events(result, "schedule")
    assert changes
    assert {change["late"] for change in changes} == {0.0}
    assert all(abs(change["t"] - began - change["at"]) < 1e-9 for change in changes)
    handover = [change for change in changes if change["links"] == "edge-0 → device-0-1"]
    became = [(change["at"], change["became"]) for change in handover]
    assert became == [(1.25, "cut"), (1.55, "9.5ms ±2ms, 129.9mbit")]
    ended = {course["links"]: course for course in events(result, "schedule ended")}
    assert ended["edge-cloud: edge-0 → cloud and 3 more"]["changes"] == 40  # every 100 ms for 4 s
    check = next(check for check in result.summary["checks"] if check["name"] == "links over time")
    assert check["verdict"] == "pass"
    assert "them at most 0 s late" in check["detail"]
    assert "Links over time" in (result.directory / "report.html").read_text()


def test_a_slower_link_makes_longer_rounds_from_then_on(tmp_path: Path) -> None:
    result = run(tmp_path, "--set", "faults=[]")
    with result.history() as history:
        rounds = [(each.end or 0.0) - each.start for each in history.rounds() if each.node == "cloud"]
    # In each round a model goes down and one comes up, and one way grows from 10 to 300 ms.
    assert rounds[-1] - rounds[0] > 2 * 0.29


@pytest.mark.slow
def test_nodes_that_wait_for_ever_are_named_although_links_continue_changing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait(*_: object, **__: object) -> None:
        import asyncio

        await asyncio.Event().wait()

    monkeypatch.setattr("node.algorithms.fedavg.average", wait)
    result = run(tmp_path)
    assert result.code == 1
    assert "the nodes wait for ever" in result.summary["error"]
