"""What a story says of a run: the same, however the rows of the record come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.results import carried, facts
from orchestrator.results import story as module
from orchestrator.results.history import History
from orchestrator.results.record import Record
from orchestrator.results.story import Cursor, Flow, Story, TimeLeft
from tests.orchestrator.example_run import SETUP, Example, plan_of


def whole(path: Path) -> Story:
    with History.open(path) as history:
        return Story.of(history)


def test_totals_are_those_of_the_history(tmp_path: Path) -> None:
    found = whole(Example(rounds=4).build(tmp_path / "run"))
    with History.open(tmp_path / "run") as history:
        assert found.training_began == history.training_began == SETUP
        assert found.now == history.seconds
        assert found.points("bytes")[-1][1] == carried.bytes_by_class(history)
        assert {kind: count for kind, (count, _) in found.kinds.items()} == carried.messages_by_kind(history)
        assert {ends: round(flow.total) for ends, flow in found.links.items()} == {
            (row.source, row.target): row.delivered_bytes for row in carried.link_counters(history)
        }
        curve = [
            (t, value) for t, node, _, _, name, value in found.points("metrics") if (node, name) == ("cloud", "loss")
        ]
        assert curve == [(round(row.t, 3), row.value) for row in history.global_series("loss")]
        assert found.round == 4
        assert all((of := found.latest_round(node)) is None or of.end is not None for node in history.nodes)


def test_a_fault_by_hand_is_told_with_who_made_it(tmp_path: Path) -> None:
    found = whole(Example(rounds=4, by_hand=True).build(tmp_path / "run"))
    with History.open(tmp_path / "run") as history:
        (span,) = [span for span in history.faults() if span.by]
        (event,) = history.events("injected")
    ((t, fault, user, via),) = found.points("by_hand")
    assert (t, user, via) == (round(event.t, 3), span.by, event.data["via"])
    assert (fault["id"], fault["action"], fault["target"]) == (span.id, span.action, span.target)
    assert found.by_hand[span.id] == event.data["planned"]


def test_small_pieces_come_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Example(rounds=3).build(tmp_path / "run")
    at_once = whole(path)
    monkeypatch.setattr(module, "PIECE", 17)
    in_pieces = whole(path)
    everything = Cursor(), in_pieces.cursor
    assert in_pieces.cursor == at_once.cursor
    assert in_pieces.added(*everything) == at_once.added(*everything)
    assert in_pieces.kinds == at_once.kinds


def test_a_long_past_is_summed_up_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Example(rounds=6).build(tmp_path / "run")
    monkeypatch.setattr(module, "PIECE", 100_000)
    one_by_one = whole(path)
    monkeypatch.setattr(module, "PIECE", 150)  # the links' latest five readings, and more
    monkeypatch.setattr(module, "SUMMED", 333)
    summed = whole(path)
    assert summed.cursor == one_by_one.cursor
    assert summed.added(Cursor(), summed.cursor) == one_by_one.added(Cursor(), one_by_one.cursor)
    for flows in ("links", "dropped"):
        found, expected = (
            {ends: (flow.t, flow.total, flow.rate) for ends, flow in getattr(each, flows).items()}
            for each in (summed, one_by_one)
        )
        assert found == expected
    assert (summed.kinds, summed.sending, summed.now) == (one_by_one.kinds, one_by_one.sending, one_by_one.now)


def test_many_devices_are_told_of_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(Example(edges=1, devices_per_edge=3, with_faults=False))
    record = Record.create(tmp_path / "run", json.dumps(plan), {})
    reports = [(1, 0.1), (1, 0.5), (1, 0.9), (2, 0.4), (None, 0.7)]
    for index, (round, value) in enumerate(reports):
        record.metric(float(index), f"device-0-{index % 3}", round, "own", "accuracy", value)
    record.metric(9.0, "cloud", 1, "global", "accuracy", 0.8)
    record.flush()
    assert whole(tmp_path / "run").points("bands") == []
    monkeypatch.setattr(facts, "DEVICES", 2)
    found = whole(tmp_path / "run")
    first, second = (
        [2.0, 1, "own", "accuracy", 0.1, 0.9, pytest.approx(0.5)],
        [3.0, 2, "own", "accuracy", 0.4, 0.4, 0.4],
    )
    assert found.points("bands") == [first, second]
    assert found.points("metrics") == [[9.0, "cloud", 1, "global", "accuracy", 0.8]]
    before = found.cursor
    record.metric(10.0, "device-0-0", 1, "own", "accuracy", 0.1)  # one that is late
    record.close()
    with History.open(tmp_path / "run") as history:
        found.read(history)
    assert found.added(before, found.cursor)["bands"] == [[10.0, 1, "own", "accuracy", 0.1, 0.9, pytest.approx(0.4)]]


def test_who_comes_again_gets_the_rest_and_nothing_twice(tmp_path: Path) -> None:
    found = whole(Example(rounds=4, by_hand=True).build(tmp_path / "run"))
    end = found.cursor
    middle = Cursor(metrics=4, faults=2, rounds=9, bytes=100, by_hand=end.by_hand)
    first, rest = found.added(Cursor(), middle), found.added(middle, end)
    assert [name for name, points in first.items() if not points] == ["bands"]  # there are few devices
    assert [name for name, points in rest.items() if not points] == ["bands", "by_hand"]
    assert {name: first[name] + rest[name] for name in first} == found.added(Cursor(), end)
    assert not any(found.added(end, end).values())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1-2-3",
        "1-2-3-4-5",
        "1-2-3-4-5-6-7",
        "a-b-c-d-e-f",
        "1--2-3-4-5",
        "-1-2-3-4-5-6",
        "9" * 30 + "-0-0-0-0-0",
        "²-1-1-1-1-1",
    ],
)
def test_a_cursor_that_nobody_gave_is_the_beginning(text: str) -> None:
    assert Cursor.parse(text) == Cursor(0, 0, 0, 0, 0, 0)


def test_a_cursor_comes_back_as_it_was_given() -> None:
    assert Cursor.parse(str(Cursor(4, 0, 0, 12, 7, 1))) == Cursor(4, 0, 0, 12, 7, 1)


def test_a_count_that_falls_has_begun_again() -> None:
    flow = Flow()
    totals = []
    for t, count in ((1.0, 100), (2.0, 300), (3.0, 0), (4.0, 50)):
        flow.read(t, count)
        totals.append(flow.total)
    assert totals == [100, 300, 300, 350]
    assert flow.rate == 50.0


def test_a_rate_needs_readings_that_are_apart() -> None:
    """A node that registers and beats at once told two readings 0.09 ms apart, and "used 56,000 cores"."""
    flow = Flow()
    for t, count in ((1.0, 2.0), (1.00009, 7.0), (2.0, 7.5)):
        flow.read(t, count)
        assert flow.rate <= 5.5
    assert flow.rate == 5.5
    flow.read(2.1, 9.0)
    assert (flow.rate, flow.total) == (5.5, 9.0)


def test_what_nodes_say_is_taken_as_it_is(tmp_path: Path) -> None:
    """Values that are no numbers, rounds without a beginning, and events whose data is not what is expected."""
    record = Record.create(tmp_path / "run", '{"nodes": []}', {})
    record.metric(1.0, "<b>x</b>", None, "global", "accuracy", float("nan"))
    record.metric(1.0, "<b>x</b>", 1, "global", "accuracy", 0.5)
    record.event(1.0, "cloud", "round", 1, {"phase": ["odd"]})
    record.event(1.0, "cloud", "injected", None, {"fault": 1})  # only the orchestrator tells of faults by hand
    record.close()
    found = whole(tmp_path / "run")
    assert found.points("metrics") == [[1.0, "<b>x</b>", 1, "global", "accuracy", 0.5]]
    assert found.points("rounds") == [[1.0, "cloud", 1, None, "end", False]]
    assert found.events("links looked at") == []
    assert found.by_hand == {}


def test_the_coming_rounds_last_as_long_as_the_latest(tmp_path: Path) -> None:
    """Rounds 1 and 2 take 4 s each, from 1 s on: when round 3 of 5 begins at 9 s, 12 s are left."""
    story = Story(plan_of(Example(edges=1, devices_per_edge=1, rounds=5, with_faults=False)))
    assert story.time_left() is None
    story.hear("event", (1.0, None, "training", None, None, "{}"))
    assert story.time_left() is None
    for number in (1, 2):
        for t, phase in ((4.0 * number - 3, "start"), (4.0 * number + 1, "end")):
            story.hear("event", (t, "cloud", "round", number, None, json.dumps({"phase": phase})))
    assert story.time_left() == TimeLeft(12.0, "rounds")
    story.now = 11.0
    assert story.time_left() == TimeLeft(10.0, "rounds")
    story.now = 40.0  # a round that takes very long
    assert story.time_left() == TimeLeft(0.0, "rounds")


def test_the_duration_that_a_scenario_allows_may_come_first() -> None:
    plan = plan_of(Example(edges=1, devices_per_edge=1, rounds=5, with_faults=False))
    story = Story(plan | {"stop": {"rounds": 5, "after": "10s"}})
    story.hear("event", (1.0, None, "training", None, None, "{}"))
    assert story.time_left() == TimeLeft(10.0, "time")
    story.hear("event", (5.0, "cloud", "round", 1, None, '{"phase": "end"}'))
    assert story.time_left() == TimeLeft(6.0, "time")  # 16 s by rounds
    assert Story(plan | {"stop": {}}).time_left() is None
