"""What the observer prints, and that its readers use the same words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgebed.testing import observer
from orchestrator.drivers.printed import Printed
from orchestrator.limits import fault_effects, faults

ROOT = Path(__file__).parents[3]


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    lines = capsys.readouterr().out.splitlines()
    return [json.loads(line.removeprefix("::edgebed ")) for line in lines]


def test_a_message_has_the_same_number_at_both_ends(capsys: pytest.CaptureFixture[str]) -> None:
    sender = observer.Observer()
    first = sender.next_message(100)
    second = sender.next_message(100)
    sender.sent(first)
    observer.Observer().received(first)
    sender.sent(second)
    sent, received, other = printed(capsys)
    assert len(first) == 100
    assert sent["number"] == received["number"] != other["number"]
    assert (sent["event"], received["event"]) == (fault_effects.SENT, fault_effects.RECEIVED)


def test_the_lines_are_events_of_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    reporting = observer.Observer()
    reporting.peer_lost("closed")
    reporting.training_started(2)
    reporting.fault_may_begin()
    reader = Printed()
    names = []
    for line in capsys.readouterr().out.splitlines():
        (message,) = reader.messages(line)
        assert message["type"] == "event"
        names.append(message["name"])
    assert names == [fault_effects.PEER_LOST, fault_effects.TRAINING_STARTED, faults.MAY_BEGIN]


def test_the_copy_next_to_the_shipped_programs_is_equal() -> None:
    copy = ROOT / "scenarios" / "peers" / "messages" / "observer.py"
    assert copy.read_text() == Path(observer.__file__).read_text()
