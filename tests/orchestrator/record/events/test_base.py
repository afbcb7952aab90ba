"""Typed events: their data in the record, and their names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import node
from orchestrator.record.events import links, network, nodes, overload, run
from orchestrator.record.events.base import RecordedEvent
from tests.texts import containing

KINDS = [
    kind
    for module in (links, network, nodes, overload, run)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, RecordedEvent) and kind is not RecordedEvent
]


def test_no_two_kinds_have_the_same_name() -> None:
    names = [kind.NAME for kind in KINDS]
    assert sorted(names) == sorted(set(names))


def names_in_source(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.py"):
        yield from re.findall(r'reporter\.event\(\s*"([\w ]+)"', path.read_text(encoding="utf-8"))


def test_every_event_that_nodes_report_is_a_kind() -> None:
    names = set(names_in_source(Path(node.__file__).parent))
    assert len(names) > 5
    assert names <= {kind.NAME for kind in KINDS}


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (run.Training(), {}),
        (run.Gap(1.0, 2.0, 0.5), {"since": 1.0, "seconds": 2.0, "stood_still": 0.5}),
        (
            run.NodeMoved("edge-0", "b", None, "no host is left"),
            {"node": "edge-0", "from": "b", "to": None, "reason": "no host is left", "checkpoint": None},
        ),
        (run.EdgeChanged("device-0", "edge-0", "edge-1"), {"node": "device-0", "from": "edge-0", "to": "edge-1"}),
        (run.StackInForce("cloud", {"tcp_retries2": "8"}), {"node": "cloud", "tcp_retries2": "8"}),
        (nodes.BadMessage(reason="no kind", count=3), {"reason": "no kind", "count": 3}),
        (nodes.KilledAtEnd(programs=["cloud.web"], grace=2.0), {"programs": ["cloud.web"], "grace": 2.0}),
        (
            links.CrossTraffic("cell up", "end", "poisson", 1e6),
            {"channel": "cell up", "phase": "end", "kind": "poisson", "rate": 1e6},
        ),
    ],
)
def test_the_data_of_an_event(event: RecordedEvent, data: dict[str, object]) -> None:
    assert event.to_json() == data
    assert list(event.to_json()) == list(data)
    assert type(event).from_json(data) == event


def test_fields_that_a_node_adds_are_left_out() -> None:
    assert nodes.Late.from_json({"peer": "device-0", "kind": "model", "size": 3}) == nodes.Late("device-0", "model")


def test_an_event_as_the_message_of_a_node() -> None:
    assert nodes.LinesDropped(3).to_message() == {"type": "event", "name": "lines dropped", "lines": 3}


def test_a_setting_that_a_kernel_refuses() -> None:
    wanted = {"tcp_congestion_control": "bbr", "tcp_retries2": "8"}
    assert run.StackInForce("cloud", wanted).refused(wanted) == []
    assert run.StackInForce("cloud", {"tcp_congestion_control": "cubic"}).refused(wanted) == [
        "tcp_congestion_control cubic and not bbr",
        "tcp_retries2 unknown and not 8",
    ]


def test_changes_of_hosts_as_sentences() -> None:
    assert str(run.HostChanged("b", "back")) == "the host b is there again"
    assert str(run.HostChanged("b", "unusable", "no {image}")) == containing("host", "used again: no {image}")
    assert str(run.HostChanged("b", "new")) == "the host b is new: "


def test_moves_of_nodes_as_sentences() -> None:
    moved = run.NodeMoved("edge-0", "b", "a", "silent; most cores free", 3.2)
    assert str(moved) == "edge-0 moves from b to a, with its checkpoint of 3.2 s before: silent; most cores free"
    assert str(run.NodeMoved("edge-0", "b", "a", "silent")) == "edge-0 moves from b to a, with no checkpoint: silent"
    assert str(run.NodeMoved("edge-0", "b", None, "silent")) == "edge-0 cannot move from b: silent"
    assert str(run.NodeMoved.from_json({})) == "None cannot move from None: None"  # of a damaged record
