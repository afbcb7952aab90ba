"""Tests of what programs print for the record."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.drivers.printed import LONGEST_LINE, Lines, Printed
from orchestrator.run.messages import problem


def told(*lines: str, rounds: int | None = None) -> list[dict[str, Any]]:
    printed = Printed(rounds)
    return [message for line in lines for message in printed.messages(line)]


def begins(round: int) -> dict[str, Any]:
    return {"type": "event", "name": "round", "round": round, "phase": "start"}


def ends(round: int) -> dict[str, Any]:
    return {"type": "event", "name": "round", "round": round, "phase": "end"}


def test_other_lines_are_not_for_the_record() -> None:
    assert told("INFO round 3", '{"round": 3}', ":: edgebed {}") == []


def test_figures_end_their_round_and_begin_the_next_one() -> None:
    figures = {"type": "metric", "round": 1, "values": {"scope": "global", "accuracy": 0.5}}
    assert told('12:00 INFO ::edgebed {"round": 1, "accuracy": 0.5}') == [figures, begins(1), ends(1), begins(2)]


def test_after_the_last_round_none_begins() -> None:
    assert told('::edgebed {"round": 1}', '::edgebed {"round": 2}', rounds=2) == [
        *(begins(1), ends(1), begins(2)),
        ends(2),
    ]


def test_a_round_ends_once_though_a_program_counts_again_after_its_restart() -> None:
    again = '::edgebed {"round": 1, "accuracy": 0.2}'
    figures = {"type": "metric", "round": 1, "values": {"scope": "global", "accuracy": 0.2}}
    assert told('::edgebed {"round": 1}', '::edgebed {"round": 2}', again)[-1] == figures
    assert told(again, again).count(ends(1)) == 1


@pytest.mark.parametrize("round", ["true", '"one"', "1.5"])
def test_a_round_that_is_no_whole_number_is_left_to_the_check_of_messages(round: str) -> None:
    (begun, ended) = told(f'::edgebed {{"round": {round}}}')
    assert problem(begun, []) is not None
    assert problem(ended, []) is not None


def test_a_program_that_tells_beginnings_is_believed() -> None:
    start, end = '::edgebed {"round": 1, "phase": "start"}', '::edgebed {"round": 1}'
    assert told(start, end) == [begins(1), ends(1)]
    assert told(start, start) == [begins(1)]


def test_figures_may_have_no_round_and_a_scope_of_their_own() -> None:
    assert told('::edgebed {"accuracy": 0.5, "scope": "own"}') == [
        {"type": "metric", "round": None, "values": {"scope": "own", "accuracy": 0.5}}
    ]


def test_an_event_keeps_its_fields() -> None:
    assert told('::edgebed {"event": "elected", "leader": "a", "type": "x"}') == [
        {"type": "event", "name": "elected", "round": None, "leader": "a"}
    ]


@pytest.mark.parametrize("written", ["{", "3", "[1]", '"text"', ""])
def test_a_line_that_cannot_be_read_is_told(written: str) -> None:
    (message,) = told(f"::edgebed {written}")
    assert message["type"] == "unreadable"
    assert "::edgebed" in message["reason"]


def test_lines_come_in_pieces() -> None:
    lines = Lines()
    assert lines.add("one\ntw") == ["one"]
    assert lines.add("o\n\nthr") == ["two", ""]
    assert lines.add("x" * 2 * LONGEST_LINE) == []
    (long,) = lines.add("\n")
    assert len(long) == LONGEST_LINE
