from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from orchestrator.report import render
from orchestrator.report.calibration import calibration_figures
from orchestrator.results.record.history import History
from orchestrator.results.record.writer import Record
from tests.orchestrator.example_run import Example, plan_of
from tests.orchestrator.report.test_page import Page


def calibrated(directory: Path, ended: str = "calibrated") -> History:
    record = Record.create(directory, json.dumps(plan_of(Example(edges=1, devices_per_edge=1))), {})
    up, down = ("device-0-0", "edge-0", "device-edge"), ("edge-0", "device-0-0", "device-edge")
    record.probe(1.0, *up, "rtt", 0.006, 0.0062, 0.005, 0.007, "pass", "median of 200")
    record.probe(1.0, *up, "rate", 40e6, 35e6, 38.8e6, 41.2e6, "fail", "udp for 2 s")
    record.probe(1.0, *down, "rate", 40e6, None, 38.8e6, 41.2e6, "unknown", "too little arrived")
    record.probe(1.0, *up, "burst", 3.0, 2.8, 1.0, math.inf, "unknown", "4 bursts")
    record.outcome(2.0, {"ended": ended, "error": None})
    record.close()
    return History.open(directory)


def test_a_figure_for_each_quantity(tmp_path: Path) -> None:
    figures = calibration_figures(calibrated(tmp_path))
    assert list(figures) == ["calibration-rtt", "calibration-burst", "calibration-rate"]
    accepted, asked, measured = figures["calibration-rate"]["marks"]
    names = ["device-edge: device-0-0 → edge-0", "device-edge: edge-0 → device-0-0"]
    assert figures["calibration-rate"]["y"]["labels"] == names
    assert (accepted["y0"], accepted["x0"]) == ([-0.25, 0.75], [38.8, 38.8])
    assert accepted["x1"] == pytest.approx([41.2, 41.2])
    assert (asked["y"], asked["x"]) == ([0.0, 1.0], [40.0, 40.0])
    assert (measured["name"], measured["y"], measured["x"]) == ("measured: fail", [0.0], [35.0])
    assert measured["notes"] == ["measured 35 mbit, udp for 2 s"]
    burst, *_ = figures["calibration-burst"]["marks"]
    assert burst["x0"] == []  # no upper bound is known


def test_the_page_of_a_calibration_has_them_and_others_do_not(tmp_path: Path) -> None:
    page = Page(render(calibrated(tmp_path / "one")))
    assert {"calibration-rtt", "calibration-rate"} <= page.figures.keys()
    assert calibration_figures(calibrated(tmp_path / "two", "rounds")) == {}
