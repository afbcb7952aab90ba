"""Tests of what programs print for the record."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from orchestrator.drivers.printed import LONGEST_LINE, MARK, Lines, Printed
from orchestrator.record.events.nodes import RESERVED
from orchestrator.run.nodes.messages import problem


def told(*lines: str, rounds: int | None = None) -> list[dict[str, Any]]:
    printed = Printed(rounds)
    return [message for line in lines for message in printed.messages(line)]


def begins(round: int) -> dict[str, Any]:
    return {"type": "event", "name": "round", "round": round, "phase": "start"}


def ends(round: int) -> dict[str, Any]:
    return {"type": "event", "name": "round", "round": round, "phase": "end"}


def test_other_lines_are_not_for_the_record() -> None:
    assert told("INFO round 3", '{"round": 3}', ":: edgebed {}") == []


def test_figures_end_their_round_and_start_the_next_one() -> None:
    figures = {"type": "metric", "round": 1, "values": {"scope": "global", "accuracy": 0.5}}
    assert told('12:00 INFO ::edgebed {"round": 1, "accuracy": 0.5}') == [figures, begins(1), ends(1), begins(2)]


def test_after_the_last_round_none_starts() -> None:
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


def test_after_a_round_that_cannot_be_the_others_still_count() -> None:
    seconds = '::edgebed {"round": 1764218400000}'  # a time since 1970
    assert all(problem(each, []) is not None for each in told(seconds))
    assert told(seconds, '::edgebed {"round": 1}')[-3:] == [begins(1), ends(1), begins(2)]


def test_a_program_that_reports_starts_is_believed() -> None:
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
def test_a_line_that_cannot_be_read_is_reported(written: str) -> None:
    (message,) = told(f"::edgebed {written}")
    assert message["type"] == "unreadable"
    assert "::edgebed" in message["reason"]


@pytest.mark.parametrize(
    ("written", "sent", "reason"),
    [
        ('{"accuracy": 1}', 1, None),  # JSON has one kind of number
        ('{"accuracy": 0}', 0, None),
        ('{"accuracy": 1.0}', 1.0, None),
        ('{"accuracy": null}', None, None),
        ('{"accuracy": 10.5}', 10.5, "write 0.105 for 10.5 %"),
        ('{"accuracy": 105}', 105, "a share from 0 to 1"),
        ('{"accuracy": -1}', -1, "a share from 0 to 1"),
        ('{"accuracy": true}', True, "is True: write a number"),
        ('{"accuracy": "0.9"}', "0.9", "is '0.9': write a number"),
    ],
)
def test_figures_are_numbers_and_shares(written: str, sent: Any, reason: str | None) -> None:
    (message,) = told(f"::edgebed {written}")
    assert message["values"]["accuracy"] == sent
    said = problem(message, [])
    assert said is None if reason is None else said is not None and reason in said


def test_an_event_of_many_levels_is_left_to_the_check_of_messages() -> None:
    for levels in range(900, sys.getrecursionlimit()):
        (message,) = Printed().messages(f'{MARK}{{"event": "deep", "in": {"[" * levels}{"]" * levels}}}')
        assert message["type"] in ("event", "unreadable")  # the stack is too short to read it


def test_a_large_whole_number_is_a_figure_within_the_range_of_floats() -> None:
    for large in (10**18, 10**300):
        (message,) = told(f'::edgebed {{"loss": {large}}}')
        assert problem(message, []) is None
    (message,) = told(f'::edgebed {{"loss": {10**400}}}')
    assert problem(message, []) is not None  # beyond a float


@pytest.mark.parametrize("written", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_what_is_no_number_of_json_is_refused_and_its_round_counts(written: str) -> None:
    refused, *others = told(f'::edgebed {{"round": 1, "loss": {written}, "accuracy": 0.5}}')
    assert refused["type"] == "unreadable"
    assert "loss is" in refused["reason"]
    assert others == [begins(1), ends(1), begins(2)]
    (event,) = told(f'::edgebed {{"event": "diverged", "of": [{{"loss": {written}}}]}}')
    assert event["type"] == "unreadable"


@pytest.mark.parametrize("name", RESERVED)
def test_no_program_prints_an_event_of_the_orchestrator(name: str) -> None:
    (message,) = told(f'::edgebed {{"event": "{name}", "program": "cloud", "code": 0}}')
    assert message["type"] == "unreadable"
    assert f"event '{name}' is the orchestrator's own" in message["reason"]


def test_some_languages_print_a_round_with_a_point() -> None:
    assert told('::edgebed {"round": 3.0}', rounds=3) == [begins(3), ends(3)]


def test_an_unknown_phase_ends_no_round() -> None:
    (message,) = told('::edgebed {"round": 3, "phase": "begin"}')
    assert "write start or end" in message["reason"]


def test_a_progress_bar_hides_no_figures() -> None:
    lines = Lines()
    bar = b"".join(b"\r%3d%%|%s|" % (at % 100, b"#" * 70) for at in range(1500))
    assert lines.add(bar + b'::edgebed {"round": 1}\n')[-1].endswith('::edgebed {"round": 1}')
    assert lines.add(b"x" * 2 * LONGEST_LINE + b'::edgebed {"round": 2') == []  # also without a carriage return
    (line,) = lines.add(b"}\r\n")
    assert line.endswith('::edgebed {"round": 2}')


def test_lines_come_in_pieces() -> None:
    lines = Lines()
    assert lines.add(b"one\ntw") == ["one"]
    assert lines.add(b"o\n\nthr") == ["two", ""]
    assert lines.end() == ["thr"]
    assert lines.end() == []
    assert lines.add(b"x" * 2 * LONGEST_LINE) == []
    (long,) = lines.add(b"\n")
    assert len(long) == LONGEST_LINE
    assert lines.add(b"a\nb\nabc\n", "b", "c") == ["b", "abc"]
    assert lines.add(b"a\nc", "b") == []
    assert lines.add(b"b\n", "b") == ["cb"]
