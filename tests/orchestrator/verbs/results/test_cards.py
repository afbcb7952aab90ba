"""Runs as HTML and as figures."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from node.extras import install_command
from orchestrator.errors import RunError
from orchestrator.report.marks import axis, figure, line
from orchestrator.verbs.python_interface import Run
from orchestrator.verbs.results.cards import sparkline
from orchestrator.verbs.results.plots import plotted
from tests.orchestrator.example_run import Example


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(Example().build(tmp_path))


def test_a_run_in_a_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.path.parent)
    assert "href" not in run._repr_html_()
    run.report.write_text("")
    shown = run._repr_html_()
    assert f"<b>{run.name}</b>" in shown
    assert f">{run.verdict}</span>" in shown
    assert f"accuracy {run.summary['accuracy']['global']:.1%}" in shown
    assert f'href="{run.id}/report.html"' in shown
    ElementTree.fromstring(f"<p>{shown.replace('&nbsp;', '')}</p>")


def test_a_failed_run_says_why(tmp_path: Path) -> None:
    run = Run(Example(ending=None, rounds_made=3).build(tmp_path))
    assert ">fail</span>" in run._repr_html_()
    assert "<div>finished: " in run._repr_html_()


def test_a_line_of_accuracies() -> None:
    assert 'points="2.0,22.0 118.0,2.0"' in sparkline([0.0, float("nan"), 1.0])
    assert 'points="2.0,12.0"' in sparkline([0.5])
    assert 'points="2.0,22.0 118.0,7.0"' in sparkline([-1.0, 0.5])  # 3/4 of the way from -1 to 1


def test_the_curves_are_those_of_the_report(run: Run) -> None:
    by_round, by_seconds = run.plot(), run.plot(x="seconds")
    (line,) = [trace for trace in by_round.data if trace.name == "global"]
    (timed,) = [trace for trace in by_seconds.data if trace.name == "global"]
    series = run.accuracy.query("scope == 'global' and node == 'cloud'")
    assert list(line.x) == list(series["round"])
    assert list(line.y) == list(timed.y) == list(series.value)
    assert line.line.color.startswith("#")
    assert {trace.name for trace in by_round.data} >= {each.action for each in run.faults.itertuples()}
    assert run.plot("loss").layout.title.text == "Loss by round"
    with pytest.raises(RunError, match="no node has reported 'acuracy'"):
        run.plot("acuracy")


def test_many_devices_are_a_band(tmp_path: Path) -> None:
    plot = Run(Example(edges=2, devices_per_edge=30, devices_report=True).build(tmp_path)).plot()
    (band,) = [trace for trace in plot.data if trace.fill == "tonexty"]
    assert band.fillcolor.startswith("rgba(")
    assert next(trace.name for trace in plot.data if trace.showlegend) == "60 devices: mean"


def test_dashes() -> None:
    drawn = figure("", axis(), axis(), [line("a", [1], [1], "#123456", dash="8 4"), line("b", [1], [2], "#123456")], 9)
    assert [trace.line.dash for trace in plotted(drawn).data] == ["8px,4px", "solid"]


def test_without_plotly(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(RunError, match=f"plots needs the package plotly, .*: {re.escape(install_command('plots'))}"):
        run.plot()


def test_the_topology_is_an_svg_file(run: Run) -> None:
    picture = run.topology()
    root = ElementTree.fromstring(picture.svg)
    names = [each.get("data-node") for each in root.iter("{http://www.w3.org/2000/svg}g") if each.get("data-node")]
    assert names == list(run.nodes.name)
    style = root.find("{http://www.w3.org/2000/svg}style")
    assert style is not None
    assert style.text is not None
    assert all(rule.startswith((".topology", " ", "}")) for rule in style.text.split("\n") if rule)
    assert picture._repr_html_() == picture.svg
