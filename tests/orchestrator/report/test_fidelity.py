"""Overload and losses in the report."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.fidelity.loss_audit import look
from orchestrator.record.events.overload import LATE_PACKETS, SATURATED, Overload
from orchestrator.record.rows import ProbeResult
from orchestrator.record.writer import Record
from orchestrator.report import render
from orchestrator.report.fidelity import (
    HARMFUL,
    HARMLESS,
    MOST,
    look_rows,
    mark_overloads,
    overload_rows,
    probe_figures,
)
from orchestrator.report.timeline import timeline
from orchestrator.results.history import History
from tests.orchestrator.example_run import SETUP, Example, plan_of
from tests.orchestrator.fidelity.test_loss_audit import CLASSES, row
from tests.orchestrator.report.test_page import Page

STOPPED = Overload(
    SETUP + 4.0,
    SETUP + 6.0,
    (LATE_PACKETS,),
    "the switch was held up",
    late=41,
    late_max=1.02,
    held_up=1.02,
    lost={"before the switch, from edge-0": 7},
    processors=0.5,
    switch=0.1,
    waiting=0.25,
)
BUSY = replace(STOPPED, start=SETUP + 9.0, end=SETUP + 12.0, effects=(SATURATED,), late=0, lost={}, cause="too busy")


def recorded(directory: Path, *overloads: Overload) -> History:
    """The record of a run with these overloads, and a look at its links."""
    with_plan = plan_of(Example(edges=1, devices_per_edge=1, with_faults=False))
    record = Record.create(directory, json.dumps(with_plan), {})
    record.state(1.0, "cloud", "running")
    record.event(SETUP, None, "training", None, {})
    for each in overloads:
        record.add_event(each.end, each)
    rows = [row("a", "b", 10_000, 300, 0.01), row("b", "c", 9000, 8, 0.001)]
    audit = look(rows, CLASSES)
    classes = [audit.classes[0], {**audit.classes[1], "high": None}]  # as in records of 0.2
    record.add_event(SETUP + 20, replace(audit, classes=classes))
    record.close()
    return History.open(directory)


def test_each_stretch_with_its_time_and_cause(tmp_path: Path) -> None:
    history = recorded(tmp_path, STOPPED, BUSY)
    first, second = overload_rows(history)
    assert first == {
        "at": "4.0 s",
        "lasted": "2 s",
        "what": "packets left late",
        "cause": "the switch was held up",
        "late": "41",
        "latest": "1.02 s",
        "lost": "7 before the switch, from edge-0",
        "processors": "50.0%",
        "switch": "10.0%",
        "waiting": "25.0%",
    }
    assert (second["at"], second["what"], second["late"], second["lost"]) == ("9.0 s", "processors saturated", "", "")
    shades = mark_overloads(timeline(history)[0], history)["shades"]
    stretches = [(shade["x0"], shade["x1"], shade["colour"]) for shade in shades]
    assert stretches == [(4.0, 6.0, HARMFUL), (9.0, 12.0, HARMLESS)]


def test_losses_of_classes_below_links_astray(tmp_path: Path) -> None:
    history = recorded(tmp_path)
    assert [(each["links"], each["asked"], each["measured"], each["verdict"]) for each in look_rows(history)] == [
        ("a → b", "1%", "3%", "fail"),
        ("device-edge", "1%", "3%", "fail"),
        ("edge-cloud", "0.1%", "0.0889%", "unknown"),
    ]
    assert [each["high"] for each in look_rows(history)][2] == "any"


def test_the_page_has_both(tmp_path: Path) -> None:
    page = Page(render(recorded(tmp_path, STOPPED)))
    assert "1.02 s 7 before the switch" in page.text
    assert "a → b 10,000 300 1% 3%" in page.text
    assert "links looked at" not in page.text  # no row of the log for every look


def test_only_the_longest_of_very_many(tmp_path: Path) -> None:
    many = [replace(STOPPED, start=10.0 * n, end=10.0 * n + 1 + n / 1000) for n in range(1, MOST + 6)]
    rows = overload_rows(recorded(tmp_path, *many))
    assert len(rows) == MOST
    assert rows[0]["at"] == f"{60.0 - SETUP:.1f} s"  # the five shortest came first


def test_a_run_without_either(tmp_path: Path) -> None:
    history = History.open(Example(edges=1, devices_per_edge=1, rounds_made=1, ending=None).build(tmp_path))
    assert (overload_rows(history), look_rows(history)) == ([], [])
    figure, _ = timeline(history)
    assert mark_overloads(figure, history) == figure


def calibrated(directory: Path, ended: str = "calibrated") -> History:
    record = Record.create(directory, json.dumps(plan_of(Example(edges=1, devices_per_edge=1))), {})
    up, down = ("device-0-0", "edge-0", "device-edge"), ("edge-0", "device-0-0", "device-edge")
    how = ("median of 200", "emulated")
    record.probe(ProbeResult(1.0, *up, "rtt", 0.003, 0.0062, 0.005, 0.007, "pass", *how, expected=0.006))
    record.probe(ProbeResult(1.0, *up, "rate", 40e6, 35e6, 38.8e6, 41.2e6, "fail", "udp for 2 s"))
    record.probe(ProbeResult(1.0, *down, "rate", 40e6, None, 38.8e6, 41.2e6, "unknown", "too little arrived"))
    record.probe(ProbeResult(1.0, *up, "burst", 3.0, 2.8, 1.0, math.inf, "unknown", "4 bursts"))
    record.outcome(2.0, {"ended": ended, "error": None})
    record.close()
    return History.open(directory)


def test_a_figure_for_each_quantity(tmp_path: Path) -> None:
    figures = probe_figures(calibrated(tmp_path).probes())
    assert list(figures) == ["calibration-rtt", "calibration-burst", "calibration-rate"]
    accepted, expected, measured = figures["calibration-rate"]["marks"]
    names = ["device-edge: device-0-0 → edge-0", "device-edge: edge-0 → device-0-0"]
    assert figures["calibration-rate"]["y"]["labels"] == names
    assert (accepted["y0"], accepted["x0"]) == ([-0.25, 0.75], [38.8, 38.8])
    assert accepted["x1"] == pytest.approx([41.2, 41.2])
    assert (expected["y"], expected["x"]) == ([0.0, 1.0], [40.0, 40.0])
    assert expected["notes"] == ["configured 40 mbit", "configured 40 mbit"]
    assert (measured["name"], measured["y"], measured["x"]) == ("measured: fail", [0.0], [35.0])
    assert measured["notes"] == ["measured 35 mbit, udp for 2 s"]
    trip = figures["calibration-rtt"]["marks"][1]
    assert (trip["name"], trip["x"], trip["notes"]) == ("expected", [6.0], ["expected 6 ms, configured 3 ms"])
    burst, *_ = figures["calibration-burst"]["marks"]
    assert burst["x0"] == []  # no upper bound is known


def test_the_page_of_a_calibration_has_them_and_others_do_not(tmp_path: Path) -> None:
    page = Page(render(calibrated(tmp_path / "one")))
    assert {"calibration-rtt", "calibration-rate"} <= page.figures.keys()
    page = Page(render(calibrated(tmp_path / "two", "rounds")))
    assert not [id for id in page.figures if id.startswith("calibration-")]
