from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import RunError
from orchestrator.record.writer import Record
from orchestrator.results.history import History
from orchestrator.verbs.results import logs
from orchestrator.verbs.results.logs import follow_record
from tests.orchestrator.example_run import Example, plan_of


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    made = Record.create(tmp_path, json.dumps(plan_of(Example(edges=1, devices_per_edge=1))), {})
    made.state(0.0, "edge-0", "starting", "")
    made.event(1.5, "edge-0", "joined", None, {"peer": "cloud"})
    made.event(1.6, "cloud", "joined", None, {"peer": "edge-0"})
    made.metric(3.25, "edge-0", 1, "own", "accuracy", 0.75)
    made.event(3.0, "edge-0", "round", 1, {"phase": "end", "members": 4})
    made.flush()
    yield made
    made.close()


def ended() -> bool:
    return False


def test_lines_of_one_node_by_time(record: Record, tmp_path: Path) -> None:
    assert list(follow_record(History.open(tmp_path), "edge-0", ended)) == [
        "[     0.000 s] state starting\n",
        "[     1.500 s] joined (peer cloud)\n",
        "[     3.000 s] round 1: round (phase end, members 4)\n",
        "[     3.250 s] round 1: own accuracy 0.75\n",
    ]


def test_what_is_added_follows_once(record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LOOK_EVERY", 0)
    looks = iter([True, False])

    def go_on() -> bool:
        goes = next(looks)
        if not goes:
            record.state(4.0, "edge-0", "crashed", "exit code 1: ValueError: no")
            record.flush()
        return goes

    lines = list(follow_record(History.open(tmp_path), "edge-0", go_on))
    assert len(lines) == 5
    assert lines[-1] == "[     4.000 s] state crashed (exit code 1: ValueError: no)\n"


def test_a_traceback_comes_last(record: Record, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "edge-0.log").write_text("Traceback (most recent call last):\nValueError: no\n")
    assert list(follow_record(History.open(tmp_path), "edge-0", ended))[-1].endswith("ValueError: no\n")


def test_a_node_that_does_not_exist(record: Record, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has no node 'edge-9'"):
        list(follow_record(History.open(tmp_path), "edge-9", ended))
