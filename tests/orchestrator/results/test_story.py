"""What a story says of a run: the same, however the rows of the record come."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from orchestrator.record.writer import Record
from orchestrator.results import facts
from orchestrator.results import story as module
from orchestrator.results.forecast import TimeLeft
from orchestrator.results.history import History
from orchestrator.results.story import Story
from orchestrator.results.traffic import usage, volumes
from orchestrator.results.traffic.usage import GrowingCount
from tests.orchestrator.example_run import SETUP, Example, plan_of


def whole(path: Path) -> Story:
    with History.open(path) as history:
        return Story.of(history)


def test_totals_are_those_of_the_history(tmp_path: Path) -> None:
    found = whole(Example(rounds=4, overruns=2, by_hand=True).build(tmp_path / "run"))
    used = found.usage
    with History.open(tmp_path / "run") as history:
        assert found.training_began == history.training_began == SETUP
        assert found.seconds == history.seconds
        assert {name: max(of.values()) for name, of in used.delivered.items()} == volumes.bytes_by_class(history)
        assert {kind: count for kind, (count, _) in used.kinds.items()} == volumes.messages_by_kind(history)
        assert {ends: round(flow.total) for ends, flow in used.links.items()} == {
            (row.source, row.target): row.delivered_bytes for row in volumes.link_counters(history)
        }
        assert found.round == 4
        for fact in ("rounds", "faults", "states", "probes", "overruns", "rounds_done", "current_states"):
            assert getattr(found, fact)() == getattr(history, fact)(), fact
        for fact in ("training_ended", "packets", "outcome", "driver", "engine"):
            assert getattr(found, fact) == getattr(history, fact), fact
        assert found.global_series("loss") == history.global_series("loss")
        assert found.edge_series("accuracy") == history.edge_series("accuracy")
        assert found.latest("loss") == history.global_series("loss")[-1].value


def test_small_pieces_come_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Example(rounds=3).build(tmp_path / "run")
    at_once = whole(path)
    monkeypatch.setattr(module, "PIECE", 17)
    monkeypatch.setattr(usage, "PIECE", 333)
    in_pieces = whole(path)
    for fact in ("kinds", "sending", "now", "packets", "delivered"):
        assert getattr(in_pieces.usage, fact) == getattr(at_once.usage, fact), fact
    for ends, flow in in_pieces.usage.links.items():
        assert (flow.t, flow.total) == (at_once.usage.links[ends].t, at_once.usage.links[ends].total)
    for fact in ("rounds", "faults", "states", "probes"):
        assert getattr(in_pieces, fact)() == getattr(at_once, fact)()


def test_many_devices_are_summarised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(Example(edges=1, devices_per_edge=3, with_faults=False))
    record = Record.create(tmp_path / "run", json.dumps(plan), {})
    reports = [(1, 0.1), (1, 0.5), (1, 0.9), (2, 0.4), (None, 0.7)]
    for index, (round, value) in enumerate(reports):
        record.metric(float(index), f"device-0-{index % 3}", round, "own", "accuracy", value)
    record.metric(9.0, "cloud", 1, "global", "accuracy", 0.8)
    record.metric(10.0, "device-0-0", 1, "own", "accuracy", 0.1)  # one that is late
    record.close()
    assert whole(tmp_path / "run").bands("accuracy") == {}
    monkeypatch.setattr(facts, "DEVICES", 2)
    found = whole(tmp_path / "run")
    first, second = found.bands("accuracy").values()
    # Round 1 has 0.1, 0.5 and 0.9; its last report came at 10 s.
    assert first == pytest.approx((10.0, 0.1, 0.9, 0.5))
    # Round 2 has 0.4 of device-0-0; device-0-1 and device-0-2 count with their reports of round 1.
    assert second == pytest.approx((3.0, 0.4, 0.9, 0.6))
    with History.open(tmp_path / "run") as history:
        assert history.bands("accuracy") == {1: pytest.approx(first), 2: second}


def test_the_latest_of_several_leaders_is_the_mean_of_their_latest_reports(tmp_path: Path) -> None:
    plan = plan_of(Example(edges=2, devices_per_edge=1, with_faults=False))
    plan["nodes"] = [node | {"leads": node["tier"] == "edge"} for node in plan["nodes"]]
    record = Record.create(tmp_path / "run", json.dumps(plan), {})
    told = []
    for t, node, round, value in (
        (1.0, 0, 1, 0.2),
        (2.0, 1, 1, 0.4),
        (3.0, 1, 2, 0.6),
        (4.0, 0, 1, 0.9),
        (5.0, 0, 2, 0.8),
    ):
        record.metric(t, f"edge-{node}", round, "global", "accuracy", value)
        record.flush()
        found = whole(tmp_path / "run")
        told.append(found.latest("accuracy"))
        assert told[-1] == found.global_series("accuracy")[-1].value
    record.close()
    # (0.2 + 0.4) / 2; (0.2 + 0.6) / 2: edge-0 has not reported round 2; (0.9 + 0.6) / 2; (0.8 + 0.6) / 2
    assert told == pytest.approx([0.2, 0.3, 0.4, 0.75, 0.7])


def test_a_count_that_falls_has_restarted() -> None:
    flow = GrowingCount()
    totals = []
    for t, count in ((1.0, 100), (2.0, 300), (3.0, 0), (4.0, 50)):
        flow.read(t, count)
        totals.append(flow.total)
    assert totals == [100, 300, 300, 350]
    assert flow.rate == 50.0


def test_a_rate_needs_readings_that_are_apart() -> None:
    """A node that registers and beats at once told two readings 0.09 ms apart, and "used 56,000 cores"."""
    flow = GrowingCount()
    for t, count in ((1.0, 2.0), (1.00009, 7.0), (2.0, 7.5)):
        flow.read(t, count)
        assert flow.rate <= 5.5
    assert flow.rate == 5.5
    flow.read(2.1, 9.0)
    assert (flow.rate, flow.total) == (5.5, 9.0)


def test_what_results_are_compared_by_is_kept_among_many_metrics() -> None:
    nodes = [{"name": "cloud", "tier": "cloud", "leads": True}]
    found = Story({"nodes": nodes, "data": {"task": "regression"}, "stop": {"target": {"name": "r2"}}})
    for name in (*map(str, range(module.MOST_CURVES)), "mae", "r2"):
        found.add_row("metric", (1.0, "cloud", 1, "global", name, 0.5))
    assert (found.latest("mae"), found.latest("r2")) == (0.5, 0.5)


def test_what_nodes_say_is_taken_as_it_is(tmp_path: Path) -> None:
    """Values that are no numbers, rounds without a beginning, and events whose data is not what is expected."""
    record = Record.create(tmp_path / "run", '{"nodes": []}', {})
    record.metric(1.0, "<b>x</b>", None, "global", "accuracy", float("nan"))
    record.metric(1.0, "<b>x</b>", 1, "global", "accuracy", 0.5)
    record.event(1.0, "cloud", "round", 1, {"phase": ["odd"]})
    record.event(1.0, "cloud", "injected", None, {"fault": 1})  # only the orchestrator tells of faults by hand
    record.close()
    found = whole(tmp_path / "run")
    first, second = (row.value for row in found.series("accuracy", "global")["<b>x</b>"])
    assert (math.isnan(first), second) == (True, 0.5)
    assert found.rounds() == []
    assert found.events("links looked at") == []
    assert found.by_hand == {}


@pytest.mark.parametrize("devices", [2, facts.DEVICES + 1])
def test_values_that_are_not_finite_are_those_of_the_record(tmp_path: Path, devices: int) -> None:
    """The first scope has no finite value, so that the band of many devices is that of another one."""
    plan = plan_of(Example(edges=1, devices_per_edge=devices, with_faults=False))
    record = Record.create(tmp_path / "run", json.dumps(plan), {})
    for node, scope, value in (
        ("cloud", "global", math.nan),
        ("cloud", "global", math.inf),
        ("device-0-0", "global", math.nan),
        ("device-0-0", "own", 0.25),
        ("device-0-1", "own", math.inf),
    ):
        record.metric(1.0, node, 1, scope, "accuracy", value)
    record.close()
    history, found = History.open(tmp_path / "run"), whole(tmp_path / "run")
    assert str(found.series("accuracy", "global")["cloud"]) == str(history.series("accuracy", "global")["cloud"])
    assert found.latest("accuracy") == math.inf
    assert found.bands("accuracy") == history.bands("accuracy")
    assert found.metric_names() == history.metric_names()
    assert bool(found.bands("accuracy")) == (devices > facts.DEVICES)


def test_the_coming_rounds_last_as_long_as_the_latest(tmp_path: Path) -> None:
    """Rounds 1 and 2 take 4 s each, from 1 s on: when round 3 of 5 begins at 9 s, 12 s are left."""
    story = Story(plan_of(Example(edges=1, devices_per_edge=1, rounds=5, with_faults=False)))
    assert story.time_left() is None
    story.add_row("event", (1.0, None, "training", None, None, "{}"))
    assert story.time_left() is None
    for number in (1, 2):
        for t, phase in ((4.0 * number - 3, "start"), (4.0 * number + 1, "end")):
            story.add_row("event", (t, "cloud", "round", number, None, json.dumps({"phase": phase})))
    assert story.time_left() == TimeLeft(12.0, "rounds")
    story.seconds = 11.0
    assert story.time_left() == TimeLeft(10.0, "rounds")
    story.seconds = 40.0  # a round that takes very long
    assert story.time_left() == TimeLeft(0.0, "rounds")


def test_the_duration_that_a_scenario_allows_may_come_first() -> None:
    plan = plan_of(Example(edges=1, devices_per_edge=1, rounds=5, with_faults=False))
    story = Story(plan | {"stop": {"rounds": 5, "after": "10s"}})
    story.add_row("event", (1.0, None, "training", None, None, "{}"))
    assert story.time_left() == TimeLeft(10.0, "time")
    story.add_row("event", (5.0, "cloud", "round", 1, None, '{"phase": "end"}'))
    assert story.time_left() == TimeLeft(6.0, "time")  # 16 s by rounds
    assert Story(plan | {"stop": {}}).time_left() is None
