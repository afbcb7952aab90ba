"""The page of a run, in a browser: it opens with the run, follows its record, and stays when the run is over."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import pytest

from orchestrator.host.directory import known_runs
from orchestrator.results.history import History
from tests.e2e.browser import CHROMIUM, Tab, tab
from tests.e2e.harness import ROOT, SMALL, command, write

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium"),
]

MARKUP = "<img src=x onerror=document.title=1>"
LAG = 5.0  # s; on an idle host it is below one
FAULT = "faults: [{at: 0.5s, node: device-0-1, action: pause, for: 5s}]\nstop: {after: 6s}\n"
HEARD = "document.documentElement.dataset.now"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Tab]:
    with tab(tmp_path) as found:
        yield found


def test_the_page_follows_a_run_and_stays(tmp_path: Path, browser: Tab) -> None:
    scenario = write(tmp_path, f"# {MARKUP} Does it learn?\n{SMALL.replace('rounds: 3', 'rounds: 2000')}{FAULT}")
    run = subprocess.Popen(
        command("up", scenario, "--runs", tmp_path / "runs", "--serve", "--json"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    assert run.stderr is not None
    try:
        said = next(line for line in run.stderr if line.startswith("page of this run: "))
        kept = threading.Event()
        reading = threading.Thread(target=_read, args=(run.stderr, kept))  # so that the run never waits for a reader
        reading.start()
        address = said.partition(": ")[2].strip()
        browser.look(1400, 1000)
        browser.open(address)
        browser.wait_for("document.querySelectorAll('.topology .node').length === 7")
        assert "token" not in browser.value("location.href")
        assert browser.value("document.querySelector('.question').textContent").startswith(MARKUP)
        browser.wait_for("document.querySelector('.state-paused')")
        browser.wait_for("document.querySelector('.fault-pause rect')")
        (directory,) = known_runs(tmp_path / "runs")
        with History.open(directory.path) as history:
            recorded = history.seconds - 0.001  # the page has milliseconds
        assert browser.wait_for(f"{HEARD} >= {recorded}") < LAG
        browser.open(address)  # a reload
        browser.wait_for("document.querySelectorAll('.curve.global').length > 0")
        browser.wait_for("/pass|fail|unknown/.test(document.querySelector('header .badge')?.textContent)", 60)
        shown = json.loads(
            browser.value("JSON.stringify([...document.querySelectorAll('.keys dd')].map(e => e.textContent))")
        )
        with History.open(directory.path) as history:
            assert f"{history.rounds_done()} of 2000" in shown
            accuracy = history.global_series("accuracy")[-1].value
        assert f"{100 * accuracy:.1f}%" in shown
        origin = urlsplit(address)._replace(path="/", query="").geturl()
        browser.open(origin)
        browser.wait_for(f"document.querySelector('.runs tbody')?.textContent.includes('{directory.run}')")
        assert browser.errors == []
        assert {urlsplit(each).netloc for each in browser.asked if not each.startswith("data:")} == {
            urlsplit(address).netloc
        }
        summary = json.loads(run.stdout.readline())
        assert kept.wait(20)
        assert run.poll() is None
        run.send_signal(signal.SIGINT)
        assert run.wait(20) in (0, 3)
        assert re.match("pass|fail|unknown", summary["verdict"])
        browser.open(origin)
        browser.wait_for("location.href.startsWith('chrome-error:')")
        reading.join()
    finally:
        run.kill()
        run.wait()
        run.stdout.close()
        run.stderr.close()


def _read(stream: IO[str], kept: threading.Event) -> None:
    """Read to the end. ``kept`` is set when the run is over and its page stays."""
    for line in stream:
        if line.startswith("the page stays"):
            kept.set()
