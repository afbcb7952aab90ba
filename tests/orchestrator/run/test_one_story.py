"""Terminal, page and report of a run that goes on: at one moment, one answer to each question."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.record.directory import RunDirectory
from orchestrator.report.page import context
from orchestrator.results.history import History
from orchestrator.run import monitor
from orchestrator.run.display.snapshot import Snapshot
from orchestrator.run.display.terminal import PlainView
from orchestrator.run.monitor import Monitor
from orchestrator.serve.figures import figures_of
from orchestrator.serve.following import Reader
from tests.orchestrator.drivers.sim.harness import simulate

SCENARIO = """\
name: agreed
seed: 7
algorithm: {name: hierfavg, rounds: 12, learning_rate: 0.2}
data: {dataset: digits, partition: iid, samples_per_client: 40}
model: mlp
topology: {edges: 2, devices_per_edge: 2}
hardware: {device: {speed: 0.01}}
links:
  device-edge: {latency: 2ms, rate: 50mbit}
  edge-cloud: {latency: 10ms, loss: 1%, rate: 20mbit}
faults:
  - {at: 300ms, node: device-0-0, action: crash, for: 200ms}
  - {round: 2, node: device-1-0, action: join}
  - {round: 3, node: device-1-1, action: pause, for: 100ms}
  - {round: 4, between: [edge-0, cloud], action: partition, for: 50ms}
  - {round: 5, node: edge-1, action: degrade, latency: 60ms, for: 1s}
  - {round: 6, node: device-1-0, action: slow, factor: 5}
  - {round: 7, node: device-0-1, action: disconnect}
  - {round: 9, node: device-0-1, action: leave}
  - {at: 1h, node: device-0-0, action: crash, for: 2s}
"""


def last_points(figure: dict[str, Any]) -> dict[str, Any]:
    return {mark["name"]: (mark["x"][-1], mark["y"][-1]) for mark in figure["marks"] if mark["mark"] == "line"}


@pytest.mark.slow
def test_terminal_page_and_report_agree_at_every_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Snapshot] = []
    moments: list[tuple[Snapshot, dict[str, Any], dict[str, Any]]] = []
    readers: list[Reader] = []
    hours = partial(next, itertools.count(0.0, 3600.0))  # so the page is never too early for new figures
    show = Monitor.show

    def look(each: Monitor) -> None:
        """Show, and once in each round look at the page and the report."""
        show(each)
        snapshot = shown[-1]
        if snapshot.ended or snapshot.round in (0, moments[-1][0].round if moments else 0):
            return
        each._record.flush()
        with History.open(each._record.directory) as history:
            changes = [t or 0.0 for each in history.rounds() for t in (each.start, each.end)]
            changes += [row.t for row in history.metrics(None, "train")]
            if history.seconds != snapshot.t or max(changes) > snapshot.t - 0.001:
                return  # nothing is recorded of this moment, or a node has only just started or ended its part
        readers.append(readers[0] if readers else Reader(RunDirectory(each._record.directory), hours))
        while readers[0].story is None or (readers[0].read() and readers[0].story.behind):
            readers[0].read()
        assert readers[0].story is not None
        update = readers[0].update(0)
        assert update is not None
        with History.open(each._record.directory) as history:
            page = {**update[1]["present"], "figures": figures_of(readers[0].story)}
            page["plan"] = history.plan["nodes"]
            moments.append((snapshot, page, context(history)))
            assert str(readers[0].story.next_fault()) == snapshot.next_fault

    monkeypatch.setattr(monitor, "SHOW_EVERY", 0.0)
    monkeypatch.setattr(Monitor, "show", look)
    monkeypatch.setattr(PlainView, "update", lambda view, snapshot: shown.append(snapshot))
    run = simulate(tmp_path, SCENARIO)
    assert len(moments) >= 10
    for terminal, page, report in moments:
        assert page["now"] == round(terminal.t, 3)
        assert page["round"] == terminal.round
        assert terminal.verdict == page["verdict"] == report["verdict"]
        assert f"next fault: {terminal.next_fault}." in report["saying"]
        assert page["left"] is None or page["left"]["seconds"] == terminal.left
        for id in ("accuracy-time", "accuracy-rounds", "loss-time", "loss-rounds"):
            assert last_points(page["figures"][id]) == last_points(report["figures"][id])
        told = {node: changes[-1][1] for node, changes in report["course"]["nodes"].items()}
        does = dict(zip((node["name"] for node in page["plan"]), (does for does, *_ in page["nodes"]), strict=True))
        assert told == {node: what for node, what in does.items() if node in told}
        curve = last_points(report["figures"]["accuracy-rounds"])
        assert ("global" in curve) == (terminal.value is not None)
        assert curve.get("global", (None, terminal.value))[1] == terminal.value == page["metric"][1]
    assert {terminal.next_fault for terminal, _, _ in moments if terminal.left is None} <= {moments[0][0].next_fault}
    with run.history() as history:
        assert {span.action for span in history.faults() if span.start is not None} == {
            *("crash", "join", "pause", "partition", "degrade", "slow", "disconnect", "leave")
        }
