from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.record.schema import COUNTERS
from orchestrator.record.writer import Record
from orchestrator.results.history import History
from orchestrator.results.traffic import volumes
from tests.orchestrator.example_run import ROUND, SETUP, Example, plan_of


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    """A record of a run of a cloud, an edge and two devices."""
    plan = plan_of(Example(edges=1, devices_per_edge=2, with_faults=False))
    record = Record.create(tmp_path, json.dumps(plan), {})
    yield record
    record.close()


def test_totals_continue_over_a_restart(record: Record) -> None:
    for t, messages in enumerate((3, 5, 2, 4)):  # 5 in the first life of the process, 4 in the second
        row = {"peer": "cloud", "kind": "update", "direction": "sent", "messages": messages, "bytes": 10 * messages}
        record.traffic(float(t), "edge-0", [row])
    counts = dict.fromkeys(COUNTERS, 0)
    for t, delivered in enumerate((100, 250)):
        link = {"source": "edge-0", "target": "cloud", "link_class": "edge-cloud", "delivered_bytes": delivered}
        record.counters(float(t), [counts | link | {"offered": delivered // 50}])
    record.flush()
    history = History.open(record.directory)
    assert [(row.messages, row.bytes) for row in volumes.traffic(history)] == [(9, 90)]
    assert volumes.messages_by_kind(history) == {"update": 9}
    assert volumes.bytes_by_class(history) == {"edge-cloud": 250}
    assert volumes.link_counters(history)[0].offered == 5


def test_a_second_life_that_sends_more_than_the_first_counts_next_to_it(record: Record) -> None:
    row = {"peer": "cloud", "kind": "update", "direction": "sent"}
    record.traffic(1.0, "edge-0", [row | {"messages": 3, "bytes": 30}])
    record.traffic(1.0, "edge-1", [row | {"messages": 1, "bytes": 10}])
    record.traffic_from_zero("edge-0")
    record.traffic(3.0, "edge-0", [row | {"messages": 5, "bytes": 50}])
    record.traffic(3.0, "edge-1", [row | {"messages": 2, "bytes": 20}])
    record.flush()
    totals = {row.node: (row.messages, row.bytes) for row in volumes.traffic(History.open(record.directory))}
    assert totals == {"edge-0": (8, 80), "edge-1": (2, 20)}


def test_delivered_counts_between_samples(tmp_path: Path) -> None:
    finished = History.open(Example().build(tmp_path / "run"))
    ends = "cloud", "edge-0"
    first_round, whole, before, unknown = volumes.delivered(
        finished, [(*ends, SETUP, SETUP + ROUND), (*ends, 0.0, 1e9), (*ends, 0.0, 1.0), ("cloud", "nobody", 0.0, 1e9)]
    )
    readings = [packets for _, _, packets, _ in volumes.readings(finished, *ends)]
    assert first_round == (4, readings[3] - readings[0])  # one sample a second
    assert whole == (len(readings), readings[-1] - readings[0])
    assert (before, unknown) == (None, None)
