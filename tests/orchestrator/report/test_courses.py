"""Links over time in the report: rebuilt from plan.json and the files kept in the run's directory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from netem.media.profile import ChannelProfile
from netem.profile import LinkProfile
from netem.schedules.schedule import Schedule, Step, Steps
from netem.schedules.traces import TableForm, Trace, TraceTable
from orchestrator.planning.copies.trace_files import keep_files
from orchestrator.planning.plan import LinkPlan, MediumPlan
from orchestrator.record.writer import Record
from orchestrator.report import render
from orchestrator.report.courses import MOST, course_figures, read_schedule
from orchestrator.results.history import History
from tests.orchestrator.report.test_page import Page

BASE = LinkProfile(latency=0.01, rate=10e6)
STEPS = Steps(
    (
        Step(at=2.0, settings={"rate": "5mbit"}),
        Step(at=4.0, interruption=0.5, settings={"rate": "20mbit"}),
        Step(at=6.0, over=1.0, pace=0.5, start={"rate": "8mbit"}, settings={"rate": "4mbit"}),
    ),
    repeat=20.0,
)


def link(schedule: Schedule, profile: LinkProfile = BASE, source: str = "edge-0") -> LinkPlan:
    return LinkPlan(source, "cloud", "edge-cloud", profile, 1, schedule)


def recorded(
    directory: Path, *links: LinkPlan, made: list[dict[str, Any]] | None = None, media: Sequence[MediumPlan] = ()
) -> History:
    """A training from 5 s to 15 s."""
    plan = {"name": "moving", "nodes": [{"name": "cloud", "tier": "cloud", "leads": True}], "faults": []}
    plan |= {"links": [each.to_json() for each in links], "media": [each.to_json() for each in media]}
    record = Record.create(directory, json.dumps(plan), {})
    record.event(5.0, None, "training", None, {})
    for each in made or []:
        record.event(5.0 + each["at"], None, "schedule", None, each)
    record.event(5.0, "cloud", "round", 1, {"phase": "start"})
    record.event(15.0, "cloud", "round", 1, {"phase": "end"})
    record.close()
    return History.open(directory)


def test_what_was_configured_in_steps_and_when_it_was_made(tmp_path: Path) -> None:
    made = [{"links": "edge-0 → cloud", "at": 2.0, "late": 0.004, "became": "10ms, 5mbit"}]
    history = recorded(tmp_path, link(STEPS), made=made)
    (figure,) = course_figures(history).values()
    asked, marks = figure["marks"]
    points = list(zip(asked["x"], asked["y"], strict=True))
    assert points == [(0.0, 10), (2.0, 5), (4.0, None), (4.5, 20), (6.0, 8), (6.5, 6), (7.0, 4), (10.0, 4)]
    assert (marks["x"], marks["y"], marks["notes"]) == ([2.004], [5], ["10ms, 5mbit, 4 ms late"])
    assert figure["y"]["title"] == "rate, Mbit/s"
    assert Page(render(history)).figures["course-0"]["marks"][0]["name"] == "configured for edge-0 → cloud"


def test_what_changes_is_drawn(tmp_path: Path) -> None:
    lossy = Steps((Step(at=1.0, settings={"loss": "5%"}),))
    (figure,) = course_figures(recorded(tmp_path, link(lossy))).values()
    assert figure["y"]["title"] == "loss, %"
    assert figure["marks"][0]["y"] == [0, pytest.approx(5), pytest.approx(5)]


def test_a_channel_of_a_shared_medium_is_drawn(tmp_path: Path) -> None:
    schedule = Steps((Step(at=2.0, settings={"rate": "5mbit"}),))
    cell = MediumPlan("cell", {"cell": ChannelProfile(20e6)}, (), {"cell": schedule})
    (figure,) = course_figures(recorded(tmp_path, media=[cell])).values()
    asked = figure["marks"][0]
    assert (asked["name"], asked["x"], asked["y"]) == ("configured for cell", [0.0, 2.0, 10.0], [20, 5, 5])


def test_a_schedule_that_comes_after_the_end(tmp_path: Path) -> None:
    assert course_figures(recorded(tmp_path, link(Steps((Step(at=60.0, settings={"loss": "5%"}),))))) == {}


TEXTS = {
    "up.txt": "1\n4\n4\n90\n140\n",
    "drive.csv": "t_s,rate_mbit,loss\n0,5,1%\n1.5,2,\n",
    "logger.csv": "clock,ping,rate_mbit\n5000,40,5\n5001,60,2\n",
}
LOGGER = TableForm(columns={"t": "clock"}, units={"t": "s", "half_rtt": "ms"}, half_rtt="ping", start="first-row")


@pytest.mark.parametrize(
    "schedule",
    [
        STEPS,
        Steps((Step(at=1.0, settings=LinkProfile(loss=0.1).to_mapping()),)),
        Trace.read(TEXTS["up.txt"], "up.txt", window=0.05),
        TraceTable.read(TEXTS["drive.csv"], "drive.csv", repeat=3.0),
        TraceTable.read(TEXTS["logger.csv"], "logger.csv", form=LOGGER),
    ],
)
def test_schedules_are_read_again_as_they_were(tmp_path: Path, schedule: Schedule) -> None:
    if isinstance(schedule, Trace | TraceTable):
        (tmp_path / schedule.name).write_text(TEXTS[schedule.name])
        keep_files({"links": [link(schedule).to_json()]}, tmp_path, tmp_path / "run")
    mapping = json.loads(json.dumps(schedule.to_mapping()))
    again = read_schedule(mapping, tmp_path / "run")
    assert again is not None
    assert again.to_mapping() == schedule.to_mapping()
    assert again.extremes(BASE) == schedule.extremes(BASE)


def test_a_file_that_was_not_kept_leaves_its_figure_out(tmp_path: Path) -> None:
    history = recorded(tmp_path, link(Trace.read("1\n90\n", "up.txt")), link(STEPS, source="edge-1"))
    (figure,) = course_figures(history).values()
    assert figure["marks"][0]["name"] == "configured for edge-1 → cloud"


def test_only_some_of_very_many(tmp_path: Path) -> None:
    links = [link(STEPS, LinkProfile(rate=1e6 + number), f"edge-{number}") for number in range(MOST + 3)]
    assert len(course_figures(recorded(tmp_path, *links))) == MOST
