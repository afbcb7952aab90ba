"""Figures for papers: what is drawn lies on the page, and the files are whole."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.report.marks import Figure, area, axis, bars, figure, line, points, ranges, texts
from orchestrator.report.page import figures_of
from orchestrator.report.pdf import pdf
from orchestrator.report.pgf import pgf
from orchestrator.report.ticks import in_words, ticks
from orchestrator.report.vector import WIDTH, Clip, Label, Stroke, drawn
from orchestrator.report.widths import width_of
from orchestrator.results.record.history import History
from tests.orchestrator.example_run import Example

NASTY = r"50% \input{x} $ # _ & ~ ^ (a) } {"
COLOUR = "#1f5fa8"


def curves(name: str = "global") -> Figure:
    x, y = axis("round", zero=True), axis("accuracy", format="percent")
    marks = [
        area([1, 2], [0.1, 0.2], [0.3, 0.4], COLOUR),
        line(name, [1, 2], [0.2, 0.3], COLOUR, dash="8 4", points=True),
    ]
    return figure("Accuracy", x, y, [*marks, line("other", [1, 2], [0.3, None], "var(--series-1)", steps=True)], 200)


def of_cases() -> Figure:
    names = ["links.device-cloud.loss=0%", "links.device-cloud.loss=5%,\ndata.partition=iid"]
    marks = [bars("", [(0, 464, -0.3, 0.3)], COLOUR), ranges([0.0], [100], [600], COLOUR)]
    marks += [points("mean", [464], [1], COLOUR), texts([600.0, 464.0], [0.0, 1.0], ["464 ± 214 ms", "≥ 3.32 s"])]
    return figure("Time", axis("seconds", range=(0.0, 610.0)), axis(labels=names), marks, 80)


@pytest.mark.parametrize(
    ("low", "high", "count", "found"),
    [
        (0, 1, 5, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (-3, 12, 4, [0.0, 5.0, 10.0]),
        (0.372, 0.931, 6, [0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
        (2, 2, 3, [2]),
    ],
)
def test_ticks_are_round(low: float, high: float, count: float, found: list[float]) -> None:
    assert ticks(low, high, count) == found


@pytest.mark.parametrize(
    ("form", "value", "words"),
    [("percent", 0.405, "40.5%"), ("bytes", 2e6, "2 MB"), ("number", -1234.5, "−1,234.5"), ("rate", 5e6, "5 Mbit/s")],
)
def test_values_in_words(form: str, value: float, words: str) -> None:
    assert in_words({"format": form}, value) == words


def test_widths_are_those_of_helvetica() -> None:
    """Adobe's Helvetica.afm: W 944, i 222, space 278, 5 556."""
    assert width_of("W i5", 10) == pytest.approx(9.44 + 2.78 + 2.22 + 5.56)


@pytest.mark.parametrize("shown", [curves(), curves("x" * 60), of_cases()])
def test_texts_lie_on_the_page(shown: Figure) -> None:
    drawing = drawn(shown)
    labels = [shape for shape in drawing.plain() if isinstance(shape, Label) and not shape.upwards]
    assert len(labels) > 6
    for label in labels:
        start = label.at[0] - {"start": 0.0, "middle": 0.5, "end": 1.0}[label.anchor] * width_of(label.text, label.size)
        assert start >= 0.0
        assert start + width_of(label.text, label.size) <= WIDTH
        assert 0.0 <= label.at[1] <= drawing.height - label.size / 2
    assert all(all(0.0 <= x <= WIDTH for x, _ in shape.corners) for shape in drawing.shapes if isinstance(shape, Clip))


def test_a_gap_ends_a_line_and_steps_have_corners() -> None:
    values = axis("y", range=(0, 1))
    shown = figure("", axis("x", range=(0, 4)), values, [line("", [0, 1, 2, 3, 4], [0, 1, None, 1, 0], COLOUR)], 100)
    (clip,) = [shape for shape in drawn(shown).shapes if isinstance(shape, Clip)]
    assert [len(shape.points) for shape in clip.shapes if isinstance(shape, Stroke)] == [2, 2]
    shown["marks"] = [line("", [0, 1], [0, 1], COLOUR, steps=True)]
    (clip,) = [shape for shape in drawn(shown).shapes if isinstance(shape, Clip)]
    (stroke,) = clip.shapes
    assert isinstance(stroke, Stroke)
    assert [stroke.points[0][1] == stroke.points[1][1], stroke.points[1][0] == stroke.points[2][0]] == [True, True]


@pytest.mark.parametrize("shown", [curves(), curves(NASTY), of_cases()])
def test_a_pdf_is_whole(shown: Figure) -> None:
    file = pdf(drawn(shown))
    assert file.startswith(b"%PDF-1.4\n")
    table = int(file.rpartition(b"startxref\n")[2].split()[0])
    assert file[table:].startswith(b"xref\n0 5\n")
    places = [int(each) for each in re.findall(rb"^(\d{10}) 00000 n", file[table:], re.MULTILINE)]
    assert [file[place:].split(b"\n")[0] for place in places] == [b"%d 0 obj" % number for number in (1, 2, 3, 4)]
    length, stream = re.search(
        rb"/Length (\d+) /Filter /FlateDecode >>\nstream\n(.*)\nendstream", file, re.DOTALL
    ).groups()  # type: ignore[union-attr]
    assert int(length) == len(stream)
    content = zlib.decompress(stream).decode("ascii")
    assert content.count("BT ") == content.count(" ET") > 6
    assert content.count("q ") == content.count("\nQ")
    assert "nan" not in content
    assert "inf" not in content
    assert pdf(drawn(shown)) == file


def test_texts_in_a_pdf_are_letters_of_its_encoding() -> None:
    content = zlib.decompress(pdf(drawn(of_cases())).partition(b"stream\n")[2]).decode()
    said = [bytes.fromhex(each).decode("cp1252") for each in re.findall("<([0-9a-f]*)> Tj", content)]
    assert {"464 ± 214 ms", ">= 3.32 s", "links.device-cloud.loss=0%"} <= {*said}


@pytest.mark.parametrize("shown", [curves(), curves(NASTY), of_cases()])
def test_a_picture_for_latex(shown: Figure) -> None:
    written = pgf(drawn(shown))
    assert written.count(r"\begin{tikzpicture}") == written.count(r"\end{tikzpicture}") == 1
    assert written.count(r"\begin{scope}") == written.count(r"\end{scope}") > 0
    plain = re.sub(r"\\[{}]", "", written)
    assert plain.count("{") == plain.count("}")
    assert r"\input{x}" not in written.partition("\n")[2]


def test_figures_of_a_report_are_written(tmp_path: Path) -> None:
    run = Example(rounds=4).build(tmp_path / "runs" / "short")
    for kind in ("pdf", "pgf"):
        done = CliRunner().invoke(cli, ["export", str(tmp_path / "papers"), "--to", kind, "-r", str(run)])
        assert done.output == f"short: written to {tmp_path}/papers/short\n"
    with History.open(run) as history:
        shown = {id for id, figure in figures_of(history).items() if figure["marks"]}
    assert {"accuracy-time", "loss-rounds", "timeline"} <= shown
    assert {path.name for path in (tmp_path / "papers/short").iterdir()} == {
        f"{id}.{kind}" for id in shown for kind in ("pdf", "pgf")
    }
    again = CliRunner().invoke(cli, ["export", str(tmp_path / "papers"), "--to", "pdf", "-r", str(run)])
    assert "short is already in" in str(again.exception)


def test_figures_of_a_comparison_are_written(tmp_path: Path) -> None:
    runs = [str(Example(rounds=4, seed=seed).build(tmp_path / "runs" / f"seed-{seed}")) for seed in (1, 2)]
    done = CliRunner().invoke(cli, ["compare", *runs, "--figures", str(tmp_path / "papers")])
    assert done.exit_code == 0
    assert (tmp_path / "papers/accuracy-rounds.pdf").read_bytes().startswith(b"%PDF")
