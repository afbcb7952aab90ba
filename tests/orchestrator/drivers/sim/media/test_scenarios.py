"""Simulated runs whose links share a medium."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.orchestrator.drivers.sim.harness import Simulated, simulate

SCENARIO = """\
algorithm: {name: fedavg, rounds: 3}
data: {dataset: digits, partition: iid}
model: {name: mlp, hidden: 128}
topology: {edges: 0, devices: 4}
links: {device-cloud: {latency: 10ms}}
shared:
  cell-0: {up: 1mbit, down: 4mbit, members: [device-*], share: fifo}
  cell-1: {up: 2mbit, down: 4mbit, members: [], share: fair}
cross_traffic:
  - {on: cell-0, direction: up, kind: on-off, rate: 500kbit, on_for: 100ms, off_for: 100ms, for: 2s}
faults:
  - {at: 1s, action: degrade, medium: cell-0, rate: 500kbit, for: 1s}
  - {at: 3s, node: device-0, action: handover, to: cell-1}
"""


def check(done: Simulated) -> None:
    assert (done.code, done.summary["rounds"], done.summary["verdict"]) == (0, 3, "pass"), done.errors


def test_equal_seeds_give_equal_records(tmp_path: Path) -> None:
    runs = [simulate(tmp_path, SCENARIO) for _ in range(2)]
    check(runs[0])
    assert runs[0].record() == runs[1].record()
    assert {row[1:3] for row in runs[0].record()["channel"]} > {
        ("cell-0 up", "device-1"),
        ("cell-0 down", "device-1"),
        ("cell-1 up", "device-0"),
        ("cell-0 up", "cross traffic"),
    }


def test_a_shared_cell_stretches_rounds_to_the_bytes_of_all(tmp_path: Path) -> None:
    one_cell = SCENARIO[: SCENARIO.index("  cell-1")].replace("share: fifo", "buffer: 2s")
    shared = simulate(tmp_path, one_cell)
    check(shared)
    own = simulate(tmp_path, SCENARIO[: SCENARIO.index("shared:")])
    check(own)
    busy: defaultdict[str, float] = defaultdict(float)
    for _, channel, _, _, _, seconds, *_ in shared.record()["channel"]:
        busy[channel] += seconds
    assert shared.summary["seconds"] - own.summary["seconds"] == pytest.approx(sum(busy.values()), rel=0.15)
