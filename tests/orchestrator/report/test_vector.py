"""Figures for papers: what matplotlib draws, and the PDF files."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from node.extras import install_command
from orchestrator.cli.main import cli
from orchestrator.errors import RunError
from orchestrator.report.marks import Figure, area, axis, bars, boxes, figure, line, points, ranges, texts
from orchestrator.report.page import figures_of
from orchestrator.report.vector import WIDTH, drawn, pdf
from orchestrator.results.history import History
from orchestrator.verbs.results.figures import write_figures
from tests.orchestrator.example_run import Example

NASTY = r"50% \input{x} $ # _ & ~ ^ (a) $ } {"
COLOUR = "#1f5fa8"


def curves(name: str = "global") -> Figure:
    x, y = axis("round", zero=True), axis("accuracy", format="percent")
    marks = [
        area([1, 2], [0.1, 0.2], [0.3, 0.4], COLOUR),
        line(name, [1, 2], [0.2, 0.3], COLOUR, dash="8 4", points=True),
    ]
    return figure("Accuracy", x, y, [*marks, line("other", [1, 2], [0.3, None], "var(--series-1)", steps=True)], 200)


def of_cases() -> Figure:
    names = ["links.device-cloud.loss=0%", "links.device-cloud.loss=5%,\ndata.partition=" + "iid" * 20]
    marks = [bars("", [(0, 464, -0.3, 0.3)], COLOUR), ranges([0.0], [100], [600], COLOUR)]
    marks += [points("mean", [464], [1], COLOUR), texts([600.0, 464.0], [0.0, 1.0], ["464 ± 214 ms", "≥ 3.32 s"])]
    return figure("Time", axis("seconds", range=(0.0, 610.0)), axis(labels=names), marks, 80)


def with_faults() -> Figure:
    lanes = [boxes("crash", [1.0], [2.0], colour=COLOUR)]
    shades = [{"x0": 1.0, "x1": 2.0, "colour": COLOUR}]
    return {**curves(), "lanes": lanes, "shades": shades, "rules": [0.25]}


def axes_of(shown: Figure) -> Axes:
    return drawn(shown).axes[-1]


def ticks(axes: Axes, name: str) -> list[str]:
    """The ticks of an axis that are inside its limits, as they are drawn."""
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    drawn_axis: Any = getattr(axes, f"{name}axis")
    low, high = sorted(drawn_axis.get_view_interval())
    return [each.label1.get_text() for each in drawn_axis.get_major_ticks() if low <= each.get_loc() <= high]


def test_lines_have_the_values_and_the_colours_of_the_report() -> None:
    axes = axes_of(curves())
    mean, other = axes.lines
    assert mean.get_xydata().tolist() == [[1, 0.2], [2, 0.3]]  # type: ignore[union-attr]
    assert [mean.get_color(), mean.get_marker(), mean.get_markevery()] == [COLOUR, "o", None]
    assert other.get_color() == "#c0621b"  # --series-1 of style.css on a light page
    assert other.get_drawstyle() == "steps-post"


def test_axes_have_titles_and_units() -> None:
    axes = axes_of(curves())
    assert [axes.get_xlabel(), axes.get_ylabel()] == ["round", "accuracy"]
    assert ticks(axes, "x") == ["0", "1", "2"]
    assert ticks(axes, "y") == ["10%", "20%", "30%", "40%"]


@pytest.mark.parametrize(
    ("form", "last", "words"),
    [("bytes", 4e6, ["0 B", "2 MB", "4 MB"]), ("rate", 2e6, ["0 bit/s", "1 Mbit/s", "2 Mbit/s"])],
)
def test_units_of_ticks(form: Any, last: float, words: list[str]) -> None:
    shown = figure("", axis(), axis("", format=form, range=(0, last)), [line("", [0, 1], [0, last], COLOUR)], 60)
    assert ticks(axes_of(shown), "y") == words


def test_a_gap_ends_a_line_and_a_point_alone_is_a_dot() -> None:
    shown = figure("", axis("x"), axis("y"), [line("", [0, 1, 2, 3, 4], [0, 1, None, 1, None], COLOUR)], 100)
    (curve,) = axes_of(shown).lines
    assert np.isnan(np.asarray(curve.get_ydata())).tolist() == [False, False, True, False, True]
    assert curve.get_markevery() == [3]


def test_cases_are_rows_from_above_with_their_texts() -> None:
    shown = of_cases()
    axes = axes_of(shown)
    assert axes.get_ylim() == (1.5, -0.5)
    first, second = ticks(axes, "y")
    assert first == "links.device-cloud.loss=0%"
    assert second == "links.device-cloud.loss=5%,\ndata.part…idiidiidiidiidiidiid"  # 9 letters, … and the last 20
    (bar,) = [each for each in axes.collections if isinstance(each, PolyCollection)]
    assert bar.get_paths()[0].get_extents().bounds == pytest.approx((0, -0.3, 464, 0.6))
    assert [each.get_text() for each in axes.texts] == ["464 ± 214 ms", "≥ 3.32 s"]


def test_faults_are_rows_above_and_shades() -> None:
    page = drawn(with_faults())
    above, axes = page.axes
    assert ticks(above, "y") == ["crash"]
    assert above.get_xlim() == axes.get_xlim()
    (lane,) = above.collections
    assert lane.get_paths()[0].get_extents().bounds == pytest.approx((1, -0.35, 1, 0.7))
    (shade,) = axes.patches
    assert shade.get_extents().width > 0
    assert axes.lines[-1].get_ydata() == [0.25, 0.25]


def test_the_legend_has_each_name_once() -> None:
    (legend,) = drawn(curves(NASTY)).legends
    assert [each.get_text() for each in legend.get_texts()] == [NASTY, "other"]
    alone = figure("", axis(), axis(), [line("only", [0, 1], [0, 1], COLOUR)], 100)
    assert drawn(alone).legends == []


@pytest.mark.parametrize("shown", [curves(), curves("x" * 120), curves(NASTY), of_cases(), with_faults()])
def test_all_texts_lie_on_the_page(shown: Figure) -> None:
    page = drawn(shown)
    page.draw_without_rendering()
    used = page.get_tightbbox()  # in inches, with everything that is visible
    assert min(used.x0, used.y0) >= 0
    assert used.x1 <= WIDTH
    assert used.y1 <= page.get_figheight()


@pytest.mark.parametrize("shown", [curves(NASTY), with_faults()])
def test_a_pdf_has_its_fonts_and_no_date(shown: Figure) -> None:
    file = pdf(shown)
    assert file.startswith(b"%PDF-")
    assert re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ", file) == [b"237.6"]  # 3.3 inch
    assert b"/FontFile2" in file  # TrueType
    assert b"/Type3" not in file
    assert b"CreationDate" not in file
    assert pdf(shown) == file


def test_settings_of_matplotlib_neither_matter_nor_change() -> None:
    file = pdf(curves())
    with matplotlib.rc_context({"font.size": 20, "pdf.fonttype": 3, "axes.grid": True}):
        assert pdf(curves()) == file
        assert matplotlib.rcParams["font.size"] == 20
    assert "matplotlib.pyplot" not in sys.modules


def test_figures_of_a_report_are_written(tmp_path: Path) -> None:
    run = Example(rounds=4).build(tmp_path / "runs" / "short")
    command = ["export", str(tmp_path / "papers"), "--to", "pdf", "-r", str(run)]
    assert CliRunner().invoke(cli, command).stdout == f"short: written to {tmp_path}/papers/short\n"
    with History.open(run) as history:
        shown = {id for id, figure in figures_of(history).items() if figure["marks"]}
    assert {"accuracy-time", "loss-rounds", "timeline"} <= shown
    assert {path.name for path in (tmp_path / "papers/short").iterdir()} == {f"{id}.pdf" for id in shown}
    again = CliRunner().invoke(cli, command)
    assert "short is already in" in str(again.exception)


def test_figures_of_a_comparison_are_written(tmp_path: Path) -> None:
    runs = [str(Example(rounds=4, seed=seed).build(tmp_path / "runs" / f"seed-{seed}")) for seed in (1, 2)]
    done = CliRunner().invoke(cli, ["compare", *runs, "--figures", str(tmp_path / "papers")])
    assert done.exit_code == 0
    assert (tmp_path / "papers/accuracy-rounds.pdf").read_bytes().startswith(b"%PDF")


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = rf"^figures.*is not installed: {re.escape(install_command('figures'))}$"
    with pytest.raises(RunError, match=said):
        write_figures({"accuracy-time": curves()}, tmp_path / "papers")
    assert not (tmp_path / "papers").exists()
