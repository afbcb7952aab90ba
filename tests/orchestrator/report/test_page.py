from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import sqlite3
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from netem.media.profile import ChannelProfile
from orchestrator.errors import RecordError
from orchestrator.record.events.nodes import ProgramEnded
from orchestrator.record.writer import Record
from orchestrator.report import figures, render, write_report
from orchestrator.report.figures import SERIES, curves, link_colour, rounds_at, staleness, traffic
from orchestrator.report.timeline import STATES, timeline
from orchestrator.report.topology import WIDTH, picture
from orchestrator.results import facts
from orchestrator.results.facts import IN_ROUND, WAITING
from orchestrator.results.history import History
from orchestrator.results.story import Story
from orchestrator.results.traffic import volumes
from tests.orchestrator.example_run import SETUP, Example, plan_of
from tests.orchestrator.report.test_timeline import rows_of

POPULATION = {
    "size": 2000,
    "asynchronous": False,
    "selected": 10,
    "selection": {"name": "uniform"},
    "hardware": [],
}

EXAMPLES = {
    "finished": Example(),
    "cut short": Example(rounds_made=4, ending=None),
    "failed before a round": Example(rounds_made=0, ending="failed"),
    "one node": Example(edges=0, devices_per_edge=0, rounds=3, with_faults=False),
    "a hundred nodes": Example(edges=9, devices_per_edge=10, rounds=4),
    "doubtful": Example(probe_error=0.2, overruns=2),
    "simulated": Example(driver="sim"),
    "real links": Example(driver="swarm", hosts=3, real=("edge-cloud",)),
}


def test_a_population_counts_with_its_clients(tmp_path: Path) -> None:
    nodes = [{"name": "cloud", "tier": "cloud", "leads": True}, {"name": "population", "tier": "device"}]
    plan = plan_of(Example(edges=0, devices_per_edge=0)) | {"nodes": nodes, "links": [], "population": POPULATION}
    Record.create(tmp_path / "run", json.dumps(plan), {}).close()
    with History.open(tmp_path / "run") as history:
        assert "2,001 1 cloud, 2,000 devices" in Page(render(history)).text
        assert picture(history).alt.startswith("1 cloud, 2,000 devices;")
        assert history.clients == 2000


class Page(HTMLParser):
    """What a browser would find: the tags, what they would load, and the figures."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        self.text = " ".join(" ".join(self.words).split())
        self.figures = json.loads(
            re.findall(r'id="figures">(.*?)</script>', page, re.DOTALL)[0], parse_constant=_refuse
        )

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> History:
    return History.open(Example().build(tmp_path_factory.mktemp("runs") / "run"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_run_has_a_page_that_is_whole_and_loads_nothing(tmp_path: Path, name: str) -> None:
    text = render(History.open(EXAMPLES[name].build(tmp_path)))
    page = Page(text)
    assert page.open == []
    assert page.loads == []
    assert page.tags.count("script") == 4  # what draws, the course, the figures, the page's own
    assert "default-src 'none'" in text
    assert "Does hierarchical averaging keep its accuracy" in page.text


def test_a_run_without_a_recorded_event(tmp_path: Path) -> None:
    Record.create(tmp_path, json.dumps({"nodes": [], "links": [], "faults": []}), {}).close()
    page = Page(render(History.open(tmp_path)))
    assert "The plan has no nodes." in page.text
    assert "No accuracy and no loss was reported." in page.text
    assert all(figure["marks"] == [] for figure in page.figures.values())


def test_the_page_says_what_the_record_says(finished: History) -> None:
    page = Page(render(finished))
    for words in (
        "Done, and every check",
        "21 of 21 planned faults took effect",
        "1 cloud, 3 edges, 12 devices",
        "40ms ±5ms, loss 0.5%, 50mbit",
        "edge-0 | cloud at 22 s 22.00 s 6 s 6 took effect",
        "fault: crash is over",
        "Example CPU @ 2.40GHz",
    ):
        assert words in page.text


def test_a_manual_fault_is_distinguished_from_the_planned_ones(tmp_path: Path) -> None:
    page = Page(render(History.open(Example(by_hand=True).build(tmp_path))))
    assert "device-0-0 manual (ada) 12.00 s 3 s 4 took effect" in page.text
    assert "of 21 planned, 1 manual" in page.text
    assert "manual fault (ada): crash begins" in page.text


def test_a_simulation_does_not_claim_that_its_links_were_checked(tmp_path: Path) -> None:
    page = Page(render(History.open(EXAMPLES["simulated"].build(tmp_path))))
    assert "every check of the emulation passed" not in page.text
    assert "not checked: links as configured, losses" in page.text


def test_doubts_are_the_first_thing_to_be_read(tmp_path: Path) -> None:
    page = Page(render(History.open(EXAMPLES["doubtful"].build(tmp_path))))
    assert "Checks that failed: links as configured" in page.text
    assert page.text.index("Checks that failed:") < page.text.index("Learning")


def test_what_nodes_say_stays_text(tmp_path: Path) -> None:
    attack = "</script><script>alert(1)</script>"
    record = Record.create(tmp_path, json.dumps(plan_of(Example(edges=1, devices_per_edge=1)) | {"name": attack}), {})
    record.event(1.0, "edge-0", attack, 1, {attack: attack})
    record.state(1.0, "edge-0", "crashed", attack)
    for round, accuracy in enumerate((math.nan, 0.25, math.nan), start=1):
        record.metric(2.0, "cloud", round, "global", "accuracy", accuracy)
    record.traffic(2.0, "edge-0", [{"peer": "cloud", "kind": attack, "direction": "sent", "messages": 1, "bytes": 1}])
    record.close()
    text = render(History.open(tmp_path))
    assert "<script>alert" not in text
    page = Page(text)
    assert page.tags.count("script") == 4
    assert page.figures["accuracy-time"]["marks"][0]["y"] == [None, 0.25, None]
    assert "accuracy NaN best 25.0%" in page.text


def test_write_report(finished: History, tmp_path: Path) -> None:
    write_report(finished, tmp_path / "report.html")
    assert 50_000 < (tmp_path / "report.html").stat().st_size < 300_000
    with pytest.raises(RecordError, match="cannot be written"):
        write_report(finished, tmp_path / "nowhere" / "report.html")


def test_curves(finished: History) -> None:
    figure = curves(finished, "accuracy", against="rounds")
    assert [mark["name"] for mark in figure["marks"]] == ["edge-0", "edge-1", "edge-2", "global"]
    assert figure["marks"][-1]["x"] == list(range(1, 11))
    against_time = curves(finished, "accuracy", against="time")
    assert against_time["marks"][-1]["x"][0] == pytest.approx(3.88)  # reported 0.12 s before the end of a 4 s round


def test_all_faults_that_took_effect_are_above_the_curves(finished: History) -> None:
    """Also those planned for a round: a row for each action, at the same x as the curves."""
    began = finished.training_began or 0.0
    spans = [span for span in finished.faults() if span.start is not None]
    by_time, by_round = (curves(finished, "loss", against=against)["lanes"] for against in ("time", "rounds"))
    assert [lane["name"] for lane in by_time] == ["crash", "disconnect", "partition", "slow"]
    disconnects = [(span.start or 0.0) - began for span in spans if span.action == "disconnect"]
    assert by_time[1]["x0"] == pytest.approx(disconnects, abs=1e-3)
    assert by_time[0]["notes"] == ["crash device-1-2, round 3, 7 s"]
    assert by_time[0]["x0"] == [9.0]  # a quarter of the third round, which lasts from 8 s to 12 s
    assert by_round[0]["x0"] == [pytest.approx(2.25, abs=0.02)]


def test_a_time_as_a_number_of_rounds(finished: History) -> None:
    began = finished.training_began or 0.0
    place = rounds_at(finished)
    found = [place(began + t) for t in (-1.0, 0.0, 2.0, 6.0, 1000.0)]
    assert found == pytest.approx([0, 0, 0.5, 1.5, 10], abs=0.02)  # rounds of 4 s, with a short pause after each


def test_many_faults_of_an_action_are_drawn_as_periods(finished: History, monkeypatch: pytest.MonkeyPatch) -> None:
    each = next(lane for lane in curves(finished, "loss", against="time")["lanes"] if lane["name"] == "disconnect")
    monkeypatch.setattr(figures, "EACH", 3)
    merged = next(lane for lane in curves(finished, "loss", against="time")["lanes"] if lane["name"] == "disconnect")
    assert len(merged["x0"]) < len(each["x0"])
    assert (min(merged["x0"]), max(merged["x1"])) == (min(each["x0"]), max(each["x1"]))
    assert all(end < start for end, start in zip(merged["x1"], merged["x0"][1:], strict=False))


def of_devices(directory: Path, devices: int) -> list[dict[str, Any]]:
    """The marks of the accuracy by round where devices reported 0.1, 0.2 ... in round 1, and 0.5 in round 2."""
    plan = plan_of(Example(edges=1, devices_per_edge=devices, with_faults=False))
    record = Record.create(directory, json.dumps(plan), {})
    for number in range(devices):
        record.metric(1.0 + number, f"device-0-{number}", 1, "own", "accuracy", 0.1 * (number + 1))
        record.metric(9.0, f"device-0-{number}", 2, "own", "accuracy", 0.5)
    record.close()
    with History.open(directory) as history:
        marks: list[dict[str, Any]] = curves(history, "accuracy", against="rounds")["marks"]
    return marks


def test_devices_have_curves_that_share_one_entry_of_the_legend(tmp_path: Path) -> None:
    marks = of_devices(tmp_path, 3)
    assert [(mark["name"], mark["group"]) for mark in marks] == [(f"device-0-{n}", "3 devices") for n in range(3)]
    assert marks[1]["y"] == [0.2, 0.5]


def test_many_devices_are_a_mean_and_a_band(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "DEVICES", 2)
    band, mean = of_devices(tmp_path, 3)
    assert (band["low"], band["high"]) == (pytest.approx([0.1, 0.5]), pytest.approx([0.3, 0.5]))
    assert mean["y"] == pytest.approx([0.2, 0.5])
    assert mean["x"] == band["x"] == [1.0, 2.0]


def test_many_edges_share_one_entry_of_the_legend(tmp_path: Path) -> None:
    edges = len(SERIES) + 1
    history = History.open(Example(edges=edges, devices_per_edge=1, rounds=2).build(tmp_path))
    marks = curves(history, "loss", against="rounds")["marks"]
    assert [mark.get("group") for mark in marks] == [*[f"{edges} edges"] * edges, None]


def test_timeline(finished: History) -> None:
    figure, left_out = timeline(finished)
    assert left_out == 0
    labels = figure["y"]["labels"]
    assert labels[:5] == ["cloud rounds", "edge-0 rounds", "edge-1 rounds", "edge-2 rounds", "cloud"]
    marks = {mark["name"]: mark for mark in figure["marks"]}
    assert (marks["crashed"]["x0"], marks["crashed"]["x1"]) == ([9.0], [16.0])  # planned at 9 s of training for 7 s
    assert rows_of(figure, "crashed") == ["device-1-2"]
    assert rows_of(figure, "partition") == ["cloud", "edge-0"]
    assert min(marks["starting"]["x0"]) == pytest.approx(0.4 - SETUP)
    assert figure["x"]["range"][0] == 0  # the axis begins where the training does
    assert finished.training_began == SETUP


def test_a_round_that_was_restarted_ends_where_the_next_starts(tmp_path: Path) -> None:
    directory = Example(edges=1, devices_per_edge=1, rounds_made=2, ending=None, with_faults=False).build(
        tmp_path / "cut"
    )
    record = Record.resume(directory, 20.0, "killed", 2)
    for t, phase in ((21.0, "start"), (25.0, "start"), (26.0, "end")):
        record.event(t, "cloud", "round", 3, {"phase": phase})
    record.event(27.0, "cloud", "round", 4, {"phase": "start"})
    record.outcome(30.0, {"ended": "interrupted"})
    record.close()
    with History.open(directory) as history:
        figure, _ = timeline(history)
        began = history.training_began
        assert began is not None
    bars = {
        (round(start + began, 3), round(end + began, 3))
        for mark in figure["marks"]
        if mark["name"] in ("round", "next round")
        for start, end, text in zip(mark["x0"], mark["x1"], mark["texts"], strict=True)
        if text in ("3", "4")
    }
    assert {(21.0, 25.0), (25.0, 26.0), (27.0, 30.0)} <= bars


def test_a_large_timeline_leaves_out_nodes_to_which_nothing_happened(tmp_path: Path) -> None:
    figure, left_out = timeline(History.open(Example(edges=5, devices_per_edge=10, rounds=1).build(tmp_path / "calm")))
    rows = figure["y"]["labels"]
    assert [label for label in rows if not label.endswith("rounds")] == ["cloud"]
    assert left_out == 55
    figure, _ = timeline(History.open(Example(edges=5, devices_per_edge=10, rounds=3).build(tmp_path / "troubled")))
    assert "device-2-5" in figure["y"]["labels"]  # crashed at 9 s of training


def test_traffic_is_reported_by_class_and_kind(finished: History) -> None:
    figure = traffic(finished)
    assert [mark["name"] for mark in figure["marks"]] == ["model", "update"]
    model, update = figure["marks"]
    row = figure["y"]["labels"].index("edge-cloud")
    assert update["x0"] == model["x1"]  # the pieces of a bar follow one another
    assert model["x0"] == [0.0] * len(figure["y"]["labels"])
    assert model["x1"][row] == sum(
        row.bytes
        for row in volumes.traffic(finished)
        if (row.kind, row.node, row.direction) == ("model", "cloud", "sent")
    )


def places(example: Example, tmp_path: Path) -> dict[str, Any]:
    return {dot.name: dot for dot in picture(History.open(example.build(tmp_path))).dots}


def test_topology_has_tiers_as_rows_and_parents_above_their_children(tmp_path: Path) -> None:
    dots = places(Example(rounds=1), tmp_path)
    assert dots["cloud"].y < dots["edge-0"].y == dots["edge-2"].y < dots["device-0-0"].y
    for edge in range(3):
        children = [dots[f"device-{edge}-{index}"].x for index in range(4)]
        assert sum(children) / 4 == pytest.approx(dots[f"edge-{edge}"].x, abs=0.1)
    assert dots["device-0-0"].label == "device-0-0"


@pytest.mark.parametrize(("edges", "devices"), [(1, 1), (2, 49), (20, 5), (40, 1), (1, 200)])
def test_topology_keeps_nodes_apart_and_inside(tmp_path: Path, edges: int, devices: int) -> None:
    example = Example(edges=edges, devices_per_edge=devices, rounds_made=0, with_faults=False)
    dots = list(places(example, tmp_path).values())
    assert all(dot.size <= dot.x <= WIDTH - dot.size for dot in dots)
    devices_only = [dot for dot in dots if dot.tier == "device"]
    size = devices_only[0].size
    spots = sorted({(dot.y, dot.x) for dot in devices_only})
    assert len(spots) == len(devices_only)
    gaps = [right - left for (y1, left), (y2, right) in itertools.pairwise(spots) if y1 == y2]
    assert all(gap >= 2 * size for gap in gaps)


def test_topology_keeps_the_links_of_its_top_row_inside(tmp_path: Path) -> None:
    """A quadratic curve rises half as high as its middle point."""
    run = Example(edges=4, with_faults=False).build(tmp_path)
    plan = json.loads((run / "plan.json").read_text())
    plan["nodes"] = [
        node | {"parent": None} if node["tier"] == "edge" else node for node in plan["nodes"] if node["tier"] != "cloud"
    ]
    (run / "plan.json").write_text(json.dumps(plan))
    arcs = [re.findall(r"[\d.-]+", line.path) for line in picture(History.open(run)).lines if "Q" in line.path]
    assert len(arcs) == 6
    assert min((float(y1) + float(middle)) / 2 for _, y1, _, middle, _, _ in arcs) > 2


@pytest.mark.parametrize("edges", [2, 12, pytest.param(40, marks=pytest.mark.slow)])
def test_shared_media_are_next_to_each_other_in_the_picture(tmp_path: Path, edges: int) -> None:
    run = Example(edges=edges, with_faults=False).build(tmp_path)
    plan = json.loads((run / "plan.json").read_text())
    profile = ChannelProfile(1e6).to_mapping()
    plan["media"] = [
        {"name": f"cell-{n}", "channels": {f"cell-{n}": profile}, "members": [f"device-{n}-0"]} for n in range(edges)
    ]
    for link in plan["links"]:
        ends = {link["source"], link["target"]}
        link["crossings"] = [[f"cell-{n}", ""] for n in range(edges) if ends == {f"device-{n}-0", f"edge-{n}"}]
    (run / "plan.json").write_text(json.dumps(plan))
    drawn = picture(History.open(run))
    media = sorted(drawn.media, key=lambda each: (each.y, each.x))
    assert len(media) == edges
    assert all(each.width / 2 <= each.x <= WIDTH - each.width / 2 for each in media)
    for one, other in itertools.pairwise(media):
        assert other.y - one.y >= 18 or other.x - one.x >= (one.width + other.width) / 2
    tiers = {dot.tier: dot.y for dot in reversed(drawn.dots)}
    assert all(tiers["edge"] < each.y < tiers["device"] for each in media)


def test_topology_draws_shared_media_on_their_links(tmp_path: Path) -> None:
    run = Example(edges=2).build(tmp_path)
    plan = json.loads((run / "plan.json").read_text())
    profile = ChannelProfile(1e6).to_mapping()
    plan["media"] = [
        {"name": name, "channels": {f"{name} up": profile, f"{name} down": profile}, "members": members}
        for name, members in (("backhaul", ["edge-0 <-> cloud"]), ("cell", ["device-0-0", "device-0-1"]), ("spare", []))
    ]
    for link in plan["links"]:
        if {link["source"], link["target"]} in ({"device-0-0", "edge-0"}, {"device-0-1", "edge-0"}):
            up = [["cell up", "device"], ["backhaul up", "device"]]
            link["crossings"] = [["backhaul down", ""], ["cell down", ""]] if link["source"] == "edge-0" else up
    (run / "plan.json").write_text(json.dumps(plan))
    drawn = picture(History.open(run))
    dots, media = {dot.name: dot for dot in drawn.dots}, {medium.name: medium for medium in drawn.media}
    assert dots["edge-0"].y < media["backhaul"].y < media["cell"].y < dots["device-0-0"].y
    assert dots["device-0-0"].x < media["cell"].x < dots["device-0-3"].x
    assert media["cell"].hover.splitlines()[:2] == [
        "cell: device-0-0, device-0-1",
        "cell up: fair, 1 mbit, busy 0.0%, at most 0.0%",
    ]
    through = [line.ends for line in drawn.lines if f"{media['cell'].x} {media['cell'].y}" in line.path]
    assert through == [("device-0-0", "edge-0"), ("device-0-1", "edge-0")]
    assert media["spare"].hover == "spare: no member at first\n" + "\n".join(
        f"spare {way}: fair, 1 mbit, busy 0.0%, at most 0.0%" for way in ("up", "down")
    )
    assert "shared media: backhaul, cell, spare" in drawn.alt


def test_topology_marks_faults_and_special_links(tmp_path: Path) -> None:
    run = Example().build(tmp_path)
    plan = json.loads((run / "plan.json").read_text())
    plan["links"][0]["profile"] = {"latency": "200ms"}
    (run / "plan.json").write_text(json.dumps(plan))
    drawn = picture(History.open(run))
    dots = {dot.name: dot for dot in drawn.dots}
    assert dots["cloud"].mark
    assert dots["cloud"].faults == 1
    assert "partition 1×" in dots["cloud"].hover
    assert not dots["edge-1"].mark
    assert [line.hover.split("\n")[0] for line in drawn.lines if line.special] == ["cloud – edge-0 (edge-cloud)"]
    assert {(note.name, note.links) for note in drawn.classes} == {
        ("edge-cloud", 3),
        ("device-edge", 12),
        ("edge-edge", 3),
    }


def test_link_classes_keep_their_colours() -> None:
    assert link_colour("device-edge") != link_colour("edge-cloud")
    assert link_colour("satellite") == link_colour("satellite")


def test_every_state_and_its_colour_is_known() -> None:
    ours = {"starting", "registered", "running", "paused", "crashed", "restarting", "left", "failed"}
    assert set(STATES) == ours | {IN_ROUND, WAITING}


@pytest.mark.parametrize("programs", [True, False])
def test_the_metrics_and_events_of_programs_and_algorithms_are_shown(tmp_path: Path, programs: bool) -> None:
    run = Example(ending="programs").build(tmp_path / "run")
    plan = json.loads((run / "plan.json").read_text())
    with contextlib.closing(sqlite3.connect(run / "run.db")) as record, record:
        rows = [(1.0, "cloud", 1, "global", "bleu", 20.5), (2.0, "cloud", 2, "global", "bleu", 30.0)]
        rows.append((2.0, "edge-0", 2, "own", "bleu", 10.0))
        record.executemany("INSERT INTO metric (t, node, round, scope, name, value) VALUES (?, ?, ?, ?, ?, ?)", rows)
        event = (3.0, "cloud", "leader elected", 2, '{"leader": "edge-0"}')
        record.execute("INSERT INTO event (t, node, name, round, data) VALUES (?, ?, ?, ?, ?)", event)
    record.close()
    program = {"label": "cloud", "node": "cloud", "command": ["serve"], "after": [], "ends_the_run": True}
    (run / "plan.json").write_text(json.dumps(plan | ({"programs": [program]} if programs else {})))
    with History.open(run) as history:
        page = Page(render(history))
        assert {"global bleu", "own bleu"} <= {f"{scope} {name}" for scope, name in Story.of(history).metric_names()}
    drawn = page.figures["metric-0"]
    assert (drawn["title"], "metric-1" in page.figures) == ("bleu", False)
    assert [(mark["name"], mark["y"]) for mark in drawn["marks"]] == [("cloud", [20.5, 30.0]), ("edge-0 (own)", [10.0])]
    assert "leader elected" in page.text


def test_programs_are_shown_and_learning_only_if_they_report_it(tmp_path: Path) -> None:
    run = Example(ending="programs").build(tmp_path / "run")
    program = {"label": "cloud.control", "command": ["flwr", "run", "<b>"], "after": ["cloud"], "ends_the_run": True}
    plan = json.loads((run / "plan.json").read_text()) | {"programs": [program]}
    (run / "plan.json").write_text(json.dumps(plan))
    with contextlib.closing(sqlite3.connect(run / "run.db")) as record, record:
        ended = (SETUP + 5, "cloud", ProgramEnded.NAME, '{"program": "cloud.control", "code": 0}')
        record.execute("INSERT INTO event (t, node, name, data) VALUES (?, ?, ?, ?)", ended)
    with History.open(run) as history:
        page = render(history)
    assert "at 5.00 s (exit code 0)" in page
    assert "flwr run &#39;&lt;b&gt;&#39;" in page
    assert "ends the run" in page
    assert '<section id="learning">' in page  # the example has accuracies
    with History.open(Example(rounds_made=0, ending="programs").build(tmp_path / "silent")) as history:
        assert '<section id="programs">' not in render(history)


def test_real_links_are_shown_as_measured(tmp_path: Path) -> None:
    """edge-0 lives beside the cloud, the other edges on hosts of their own."""
    history = History.open(EXAMPLES["real links"].build(tmp_path))
    page = Page(render(history))
    assert [(each.name, each.kind, each.profile, each.links) for each in picture(history).classes][:2] == [
        ("edge-cloud", "emulated", "40ms ±5ms, loss 0.5%, 50mbit", 1),
        ("edge-cloud", "real", "not shaped", 2),
    ]
    assert "edge-cloud cloud → edge-1 real rtt – – 0.42 ms – median of 250" in page.text
    assert "edge-cloud cloud → edge-0 emulated rtt 80 ms" in page.text
    assert "Real links while the run used them" in page.text
    assert "= pc-1 – pc-2 2 directions 0.42 ms 0.42 ms (0.42 ms to 12.4 ms) 1 of 100 1 of 20,000" in page.text
    assert "Losses while the run used the emulated links" in page.text or "Losses" not in page.text


def test_figures_of_modelled_links_say_so(tmp_path: Path) -> None:
    page = Page(render(History.open(EXAMPLES["simulated"].build(tmp_path))))
    assert "device-edge modelled: 3ms ±1ms, loss 0.2%, 40mbit" in page.text
    assert "device-edge modelled 5" in page.text  # the counters
    assert "Real links" not in page.text


def test_staleness(tmp_path: Path) -> None:
    record = Record.create(tmp_path, json.dumps(plan_of(Example(edges=1, devices_per_edge=1))), {})
    for version, mean, highest in ((1, 0.0, 0), (2, 1.5, 3)):
        record.metric(2.0, "cloud", version, "updates", "staleness", mean)
        record.metric(2.0, "cloud", version, "updates", "staleness_highest", highest)
    record.close()
    history = History.open(tmp_path)
    drawn = {mark["name"]: (mark["x"], mark["y"]) for mark in staleness(history)["marks"]}
    assert drawn == {"mean": ([1, 2], [0.0, 1.5]), "highest": ([1, 2], [0, 3])}
    assert Page(render(history)).figures["staleness"]["marks"]
