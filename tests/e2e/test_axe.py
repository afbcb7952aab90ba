"""axe (Deque Systems) over each page in a browser: no serious finding, in light and dark, on a small window too."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.record.directory import RunDirectory
from orchestrator.report import render
from orchestrator.results.history import History
from orchestrator.serve.server import Server
from tests.e2e.browser import Tab, needs_chromium, tab
from tests.orchestrator.example_run import Example

PACKAGE = importlib.util.find_spec("axe_core_python")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    needs_chromium,
    pytest.mark.skipif(PACKAGE is None, reason="there is no axe: pip install axe-core-python"),
]

OVER = "over-20260504-093000-aaaa"
RUNNING = "running-20260504-103000-aaaa"
PATIENCE = 90.0  # s for one page, on a busy host
OPEN = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
CLICK = "document.querySelector('[data-node=\"edge-0\"]').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
ASK = (
    "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => JSON.stringify(violations"
    ".filter(({impact}) => impact === 'serious' || impact === 'critical')"
    ".map(({id, nodes}) => `${id}: ${nodes[0].target} ${nodes[0].failureSummary}`)))"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that is over, with its report, and one that goes on."""
    path = Example(rounds=3, by_hand=True).build(tmp_path / "runs" / OVER)
    with History.open(path) as history:
        (path / "report.html").write_text(render(history))
    Example(rounds_made=3, ending=None, seed=8).build(tmp_path / "runs" / RUNNING)
    return tmp_path / "runs"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Tab]:
    with tab(tmp_path) as found:
        yield found


def test_axe_finds_nothing_serious(folder: Path, browser: Tab) -> None:
    assert PACKAGE is not None
    assert PACKAGE.origin is not None
    axe = Path(PACKAGE.origin).with_name("axe.min.js").read_text(encoding="utf-8")
    found = {}
    with RunDirectory(folder / RUNNING).held(), Server(folder) as server:
        browser.open(server.address_of())  # sets the cookie
        browser.wait_for("document.querySelectorAll('tbody tr').length === 2")
        own = f"http://{server.host}:{server.port}"
        run = f"{own}/run/{OVER}", "document.querySelector('#checks .badge')", OPEN
        pages = [
            (1400, False, f"{own}/", "document.querySelectorAll('tbody tr').length === 2", ""),
            (1400, False, *run),
            (620, True, *run),
            (620, True, f"{own}/run/{RUNNING}", "document.querySelector('#checks .badge')", CLICK),
            (620, False, f"{own}/compare?run={OVER}&run={RUNNING}", "document.querySelector('.drawing > svg')", ""),
            (1400, True, f"file://{folder / OVER}/report.html", "document.querySelector('.drawing > svg')", OPEN),
        ]
        for width, dark, address, ready, act in pages:
            browser.look(width, 1000, dark=dark)
            browser.open(address)
            browser.wait_for(f"location.href === {json.dumps(address)} && {ready}")
            browser.value(f"{act}; {axe}; 0")
            if findings := json.loads(browser.value(ASK, PATIENCE)):
                found[address, width] = findings
    assert found == {}
