"""How a run stands, from its record alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator import text
from orchestrator.record.directory import RunDirectory
from orchestrator.record.rows import Resources
from orchestrator.record.writer import Record
from orchestrator.report import figures
from orchestrator.report.marks import axis, figure, line, thinned
from orchestrator.results.checks.registry import checks
from orchestrator.results.history import History
from orchestrator.results.story import Story
from orchestrator.results.summary import summary
from orchestrator.serve.detail import _used
from orchestrator.serve.figures import faults_of, figures_of
from orchestrator.serve.present import planned, present, rates_of
from tests.orchestrator.example_run import ROUND, SETUP, Example


def standing(path: Path) -> tuple[dict[str, Any], dict[str, Any], Story]:
    """The plan, how the run stands, and what was folded."""
    with History.open(path) as history:
        story = Story.of(history)
        return planned(history), present(story, checks(history), rates_of(history.plan)), story


@pytest.fixture
def cut_short(tmp_path: Path) -> Path:
    """A run of ten rounds, of which three were made."""
    return Example(rounds_made=3, ending=None).build(tmp_path / "run")


def test_a_run_that_continues(cut_short: Path) -> None:
    with RunDirectory(cut_short).held():
        plan, now, story = standing(cut_short)
    nodes = dict(zip([node["name"] for node in plan["nodes"]], now["nodes"], strict=True))
    assert (now["status"], now["round"], plan["rounds"], now["ended"]) == ("running", 3, 10, None)
    crash = next(each for each in story.plan["faults"] if each["action"] == "crash")  # at 9 s for 7 s, 12 s ago
    assert nodes[crash["node"]][0] == "crashed"
    assert {state for state, *_ in nodes.values()} <= {"crashed", "in a round", "waiting", "cut off"}
    away = [fault for fault in story.faults_in_force() if fault["action"] == "disconnect"]
    assert away
    for fault in away:
        states = {
            flow[0]
            for link, flow in zip(plan["links"], now["links"], strict=True)
            if fault["node"] in (link["source"], link["target"])
        }
        assert states == {"cut"}
        assert nodes[fault["node"]][0] in ("cut off", "crashed")


def test_how_busy_shared_media_are(cut_short: Path) -> None:
    with RunDirectory(cut_short).held(), History.open(cut_short) as history:
        story = Story.of(history)
        story.usage.delivered.clear()
        for before, seconds in ((0.5, 0.4), (0.0, 0.2), (0.0, 0.1)):  # of two members
            story.usage.add_channel(story.seconds - before, "cell up", seconds)
        story.usage.add_channel(1.0, "cell down", 0.5)
        assert present(story, (), {})["media"] == {"cell up": pytest.approx(0.6), "cell down": 0.0}


def test_a_channel_that_was_at_rest_is_as_busy_as_in_its_last_sample(cut_short: Path) -> None:
    with RunDirectory(cut_short).held(), History.open(cut_short) as history:
        story = Story.of(history)
        story.usage.add_channel(story.seconds - 10.0, "cell up", 0.1)
        story.usage.delivered["device-edge"][story.seconds - 1.5] = 100
        story.usage.add_channel(story.seconds - 0.5, "cell up", 1.0)
        story.usage.delivered["device-edge"][story.seconds] = 200
        assert present(story, (), {})["media"] == {"cell up": pytest.approx(1.0)}


def test_the_medium_of_each_node_is_the_one_it_can_leave(cut_short: Path) -> None:
    plan = json.loads((cut_short / "plan.json").read_text())
    members = {"cell": ["device-0-0", "device-0-1"], "other": ["device-0-1", "edge-0 <-> cloud"]}
    plan["media"] = [{"name": name, "channels": {}, "members": of} for name, of in members.items()]
    (cut_short / "plan.json").write_text(json.dumps(plan))
    with History.open(cut_short) as history:
        media = {node["name"]: node["medium"] for node in planned(history)["nodes"]}
    assert {name for name, medium in media.items() if medium is not None} == {"device-0-0"}
    assert media["device-0-0"] == "cell"


def test_what_is_left_and_what_comes_next(cut_short: Path) -> None:
    with RunDirectory(cut_short).held():
        _, now, story = standing(cut_short)
    # Rounds of 4 s, of which 7 are missing; the last one ended 0.1 s before its time, and the record goes on to 0.05 s.
    assert now["left"] == {"seconds": pytest.approx(7 * ROUND, rel=0.05), "of": "rounds"}
    slow = next(fault for fault in story.plan["faults"] if fault["action"] == "slow")  # at 14 s of training
    assert now["next"] == [f"slow {slow['node']}", f"in {text.duration(SETUP + 14.0 - story.seconds)}"]
    story.seen_faults |= {fault["id"] for fault in story.plan["faults"] if fault["at"] is not None}
    by_round = story.next_fault()
    assert by_round is not None
    assert by_round.round == 4
    story.seen_faults |= {fault["id"] for fault in story.plan["faults"]}
    assert story.next_fault() is None


def test_a_run_with_a_killed_orchestrator(cut_short: Path) -> None:
    plan, now, _ = standing(cut_short)
    assert (now["status"], now["next"], now["left"]) == ("crashed", None, None)
    assert {state for state, *_ in now["nodes"]} == {"gone", "crashed"}
    assert {state for state, *_ in now["links"]} == {"idle"}
    assert now["verdict"] == "fail"
    assert len(plan["nodes"]) == len(now["nodes"]) == 16


def test_a_run_that_has_ended(tmp_path: Path) -> None:
    plan, now, story = standing(Example(rounds=3).build(tmp_path / "run"))
    with History.open(tmp_path / "run") as history:
        assert now["trained"] == summary(history)["training_seconds"] < story.seconds - SETUP, "the end of the run"
    assert {state for state, *_ in now["nodes"]} == {"done"}
    assert (now["status"], now["ended"], now["round"]) == ("finished", "rounds", 3)
    assert now["checks"][0]["name"] == "finished"
    assert plan["question"].startswith("Does hierarchical averaging")
    assert plan["links"][0]["asked"] == "40ms ±5ms, loss 0.5%, 50mbit"


def test_a_simulation_reports_no_processor_time(tmp_path: Path) -> None:
    path = Example(driver="sim", rounds_made=3, ending=None, with_faults=False).build(tmp_path / "run")
    with RunDirectory(path).held():
        plan, now, _ = standing(path)
    assert plan["simulated"]
    assert {state for state, *_ in now["nodes"]} <= {"in a round", "waiting"}
    assert {detail for _, detail, *_ in now["nodes"]} <= {"", "round 3"}


def test_a_manual_fault_shows_on_its_links(tmp_path: Path) -> None:
    path = Example(rounds_made=3, ending=None).build(tmp_path / "run")
    cut = {"id": 90, "action": "partition", "node": None, "between": [["edge-0"], ["cloud"]], "at": 8.0}
    planned_as = {**cut, "links": [["edge-0", "cloud"], ["cloud", "edge-0"]], "round": None, "duration": None}
    record = Record.resume(path, 60.0, "killed", 3)
    facts = {"fault": 90, "user": "ada", "uid": 1, "via": "the page", "written": {}, "planned": planned_as}
    record.event(61.0, None, "injected", 3, facts)
    record.fault(61.0, 90, "partition", "edge-0 | cloud", "start", 3, "")
    record.flush()
    with RunDirectory(path).held():
        plan, now, story = standing(path)
    record.close()
    states = {(link["source"], link["target"]): flow[0] for link, flow in zip(plan["links"], now["links"], strict=True)}
    assert states["edge-0", "cloud"] == states["cloud", "edge-0"] == "cut"
    assert faults_of(story)["rows"][-1][:2] == ["partition edge-0 | cloud", "manual: ada, the page"]


def test_figures_are_those_of_the_report(tmp_path: Path) -> None:
    path = Example(rounds=5, devices_report=True).build(tmp_path / "run")
    _, _, story = standing(path)
    drawn = figures_of(story)
    with History.open(path) as history:
        for id in ("accuracy-time", "loss-time", "accuracy-rounds", "loss-rounds"):
            metric, _, against = id.partition("-")
            assert drawn[id] == figures.curves(history, metric, against=against)
    assert [mark["name"] for mark in drawn["bytes"]["marks"]] == list(dict.fromkeys(story.link_classes.values()))
    assert [mark["name"] for mark in drawn["coordinators"]["marks"]] == ["cloud", "edge-0", "edge-1", "edge-2"]
    assert [len(mark["x0"]) for mark in drawn["memory"]["marks"]] == [1, 3, 12]
    assert drawn["memory"]["title"] == "Memory of each node (PSS)"
    assert drawn["memory"]["marks"][0]["y1"] == [31_000_000]  # the example's nodes share the rest of their 182 MB
    assert drawn["processor"]["title"] == "Processor time of each node"


def test_memory_that_was_read_only_now_and_then() -> None:
    rows = [(2.0, 190, None), (3.0, 191, 30), (4.0, 192, None), (5.0, 193, 31)]
    readings = [Resources(t, "cloud", t, rss, pss) for t, rss, pss in rows]
    assert _used(readings) == [[3.0, 1.0, 30], [4.0, 1.0, 30], [5.0, 1.0, 31]]
    assert [row[2] for row in _used([row._replace(pss=None) for row in readings])] == [191, 192, 193]


def test_a_long_curve_keeps_its_ends_and_extremes() -> None:
    heights = [float(place % 7) for place in range(5000)]
    heights[1234], heights[4321] = 99.0, -99.0
    (mark,) = thinned(figure("", axis(), axis(), [line("a", list(range(5000)), heights, "red")], 100), 600)["marks"]
    assert len(mark["x"]) <= 600
    assert (mark["x"][0], mark["x"][-1], max(mark["y"]), min(mark["y"])) == (0, 4999, 99.0, -99.0)


def test_a_run_of_programs_has_no_algorithm(tmp_path: Path) -> None:
    """So its page has no empty figure of an accuracy that no program reports."""
    path = Example(rounds_made=0).build(tmp_path / "run")
    program = {"label": "cloud", "node": "cloud", "command": ["serve"], "after": [], "ends_the_run": True}
    plan = json.loads((path / "plan.json").read_text())
    (path / "plan.json").write_text(json.dumps(plan | {"programs": [program], "algorithm": {"name": "programs"}}))
    with History.open(path) as history:
        assert planned(history)["algorithm"] is None
