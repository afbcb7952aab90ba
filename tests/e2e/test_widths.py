"""Pages at the width of a phone and of a laptop: nothing is cut, nothing runs off, and nothing waits to be seen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from orchestrator import text
from orchestrator.report import render
from orchestrator.report.marks import Figure
from orchestrator.results.history import History
from orchestrator.serve.server import Server
from orchestrator.sweep.drawing import bars, looks
from tests.e2e.browser import Tab, needs_chromium, tab
from tests.orchestrator.example_run import Example

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    needs_chromium,
]

PHONE, LAPTOP = 390, 1280
CASES = [f"links.device-cloud.loss={loss}%, data.partition=iid" for loss in (0, 5, 20)]
EXAMPLE = Example(rounds=12)
LABELS = "[...document.querySelectorAll('#traffic .tick.y')].map((each) => each.textContent)"
OUTSIDE = """[...document.querySelectorAll('.drawing > svg')].flatMap((svg) => {
  const outer = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter((each) => {
    const inner = each.getBoundingClientRect();
    return inner.right > outer.right + 0.5 || inner.left < outer.left - 0.5;
  }).map((each) => each.textContent);
})"""
"""The texts of figures that run off their drawings."""
LEFT_EDGES = "[...document.querySelectorAll('.keys dt')].map((each) => each.getBoundingClientRect().left)"
IN_ITS_BOX = """(root => box => {
  const [inner, outer] = [root, box].map((each) => each.getBoundingClientRect());
  return outer.left <= inner.left && inner.right <= outer.right;
})(document.querySelector('[data-node]'))(document.querySelector('.topology').parentElement)"""
SECOND_LINES = """[...document.querySelectorAll('figcaption')].filter((each) => each.offsetParent).filter((each) => {
  const [caption, tools] = [...each.children].map((child) => child.getBoundingClientRect());
  return tools.top > caption.top + 12;
}).length"""
"""Figures with their tools below their heading."""
UNFILLED = """[...document.querySelectorAll('.pair')].filter((each) => each.offsetParent).filter((each) => {
  const last = [...each.children].filter((child) => child.offsetParent).at(-1);
  return last && each.getBoundingClientRect().right - last.getBoundingClientRect().right > 2;
}).length"""
"""Groups of figures with a white place after the last one."""
NOTHING_YET = (
    "[...document.querySelectorAll('.drawing text')].filter((each) => each.textContent === 'nothing yet').length"
)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Tab]:
    with tab(tmp_path) as found:
        yield found


def figure_of_a_sweep() -> Figure:
    """Bars with long names, whose longest has a long text beside it."""
    seconds = {CASES[0]: [0.01, 0.02], CASES[1]: [0.1, 0.2], CASES[2]: [0.25, 0.678]}
    runs = {case: [{"seconds": each} for each in own] for case, own in seconds.items()}
    return bars(looks(CASES), runs, "seconds", "seconds to the target", text.duration)


def open_report(browser: Tab, folder: Path, width: int) -> None:
    run = EXAMPLE.build(folder / "run")
    with History.open(run) as history:
        (folder / "page.html").write_text(render(history))
    browser.look(width, 900)
    browser.open(f"file://{folder}/page.html")
    browser.wait_for("charts['traffic'].svg")


@pytest.mark.parametrize("width", [PHONE, LAPTOP])
def test_a_report(tmp_path: Path, browser: Tab, width: int) -> None:
    open_report(browser, tmp_path, width)
    assert browser.value(OUTSIDE) == []
    assert browser.value(SECOND_LINES) == 0
    assert browser.value(UNFILLED) == 0
    assert browser.value(IN_ITS_BOX)
    columns = {PHONE: 2, LAPTOP: 8}[width]
    edges = [round(edge) for edge in browser.value(LEFT_EDGES)]
    assert len({*edges}) == columns  # each row begins where the first does
    steps = [after - before for before, after in pairwise(edges[:columns])]
    assert max(steps) - min(steps) <= 1  # all cells are as far from the start of their column
    browser.value(f"drawFigures({{traffic: {json.dumps(figure_of_a_sweep())}}})")
    assert browser.value(OUTSIDE) == []
    shown = browser.value(LABELS)
    assert len({*shown}) == len(CASES)
    for label, case in zip(shown, CASES, strict=True):
        assert case.partition(",")[0].rpartition(".")[2] in label.replace("…", "")  # "loss=5%"
    assert "464 ± 303 ms" in browser.value("document.querySelector('#traffic .drawing').textContent")


def test_the_live_page_draws_what_is_out_of_view(tmp_path: Path, browser: Tab) -> None:
    """So that it can be printed or captured."""
    path = replace(EXAMPLE, devices_report=True).build(tmp_path / "runs" / "long")
    with Server(tmp_path / "runs") as server:
        browser.look(LAPTOP, 300)
        browser.open(server.address_of(f"/run/{path.name}"))
        browser.wait_for("/pass|fail|unknown/.test(document.querySelector('header .badge')?.textContent)")
        browser.wait_for("document.querySelector('#coordinators .line')")
        browser.wait_for(f"{NOTHING_YET} === 0")
        assert browser.value("scrollY") == 0
        assert browser.value(UNFILLED) == 0
        assert browser.value("document.querySelector('#memory .caption').textContent") == "Memory of each node (PSS)"
    assert browser.errors == []


def test_figures_on_paper_have_its_width(tmp_path: Path, browser: Tab) -> None:
    open_report(browser, tmp_path, LAPTOP)
    widths = "Object.values(charts).map((each) => [each.svg.clientWidth, each.plot.clientWidth])"
    on_screen = browser.value(widths)
    assert all(drawn == room for drawn, room in on_screen)
    browser.value("dispatchEvent(new Event('beforeprint'))")
    on_paper = browser.value(widths)
    assert all(drawn == room for drawn, room in on_paper)
    assert max(room for _, room in on_paper) <= 690 < max(room for _, room in on_screen)
    browser.value("dispatchEvent(new Event('afterprint'))")
    assert browser.value(widths) == on_screen
