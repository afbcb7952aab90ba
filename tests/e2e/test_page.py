"""The page of a run, in a browser: it opens with the run, follows its record, and stays when the run is over."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import pytest

from orchestrator.host.process.user_socket import user_name
from orchestrator.record.directory import known_runs
from orchestrator.results.history import History
from orchestrator.results.traffic import volumes
from orchestrator.serve.server import Server
from tests.e2e.browser import Tab, needs_chromium, tab
from tests.e2e.harness import PACED, ROOT, SMALL, command, write
from tests.orchestrator.example_run import Example

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    needs_chromium,
]

MARKUP = "<img src=x onerror=document.title=1>"
LONG = SMALL.replace("rounds: 3", "rounds: 2000") + PACED
LAG = 5.0  # s; on an idle host it is below one
FAULT = "faults: [{at: 0.5s, node: device-0-1, action: pause, for: 5s}]\nstop: {after: 6s}\n"
CELLS = "shared: {cell-0: {rate: 20mbit, members: [device-0-*]}, cell-1: {rate: 1mbit, members: []}}\n"
MEDIA = "[...document.querySelectorAll('.medium title')].map((each) => each.textContent)"
NODE = "document.querySelector('[data-node=\"device-0-1\"]')"
HEARD = "document.documentElement.dataset.now"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Tab]:
    with tab(tmp_path) as found:
        yield found


def test_the_page_follows_a_run_and_stays(tmp_path: Path, browser: Tab) -> None:
    scenario = write(tmp_path, f"# {MARKUP} Does it learn?\n{LONG}{FAULT}")
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
        browser.wait_for("document.querySelector('[data-node][data-state=paused]')")
        hint = "document.querySelector('#nodes .quiet').textContent"
        assert browser.value(hint).endswith("and to make a fault.")
        browser.wait_for("document.querySelector('.in-lane')")
        (directory,) = known_runs(tmp_path / "runs")
        with History.open(directory.path) as history:
            recorded = history.seconds - 0.001  # the page has milliseconds
        assert browser.wait_for(f"{HEARD} >= {recorded}") < LAG
        browser.open(address)  # a reload
        browser.wait_for("document.querySelectorAll('#accuracy-time .line').length > 0")
        browser.wait_for("/pass|fail|unknown/.test(document.querySelector('header .badge')?.textContent)", 60)
        shown = json.loads(
            browser.value("JSON.stringify([...document.querySelectorAll('.keys dd')].map(e => e.textContent))")
        )
        assert "time over" in shown
        assert browser.value(hint).endswith("for its history.")
        browser.look(390, 900)
        browser.wait_for("document.querySelector('#checks tbody tr')")
        browser.wait_for("(box => box.scrollWidth <= box.clientWidth)(document.querySelector('#checks .scroll'))")
        with History.open(directory.path) as history:
            assert f"{history.rounds_done()} of 2000" in shown
            reported = history.global_series("accuracy")  # none, if this host was too busy for a round
        assert (f"{100 * reported[-1].value:.1f}%" if reported else "–") in shown
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


def test_faults_and_paces_by_the_page(tmp_path: Path, browser: Tab) -> None:
    """A simulation that is slow enough to be touched: what the page asks for is done, recorded and shown."""
    scenario = write(tmp_path, f"# {MARKUP}\n{LONG}{CELLS}")
    run = subprocess.Popen(
        command("up", scenario, "--runs", tmp_path / "runs", "--driver", "sim", "--pace", "1x", "--serve", "--json"),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stderr is not None
    try:
        address = next(line for line in run.stderr if line.startswith("page of this run: ")).partition(": ")[2].strip()
        reading = threading.Thread(target=_read, args=(run.stderr, threading.Event()))
        reading.start()
        browser.look(1400, 1000)
        browser.open(address)
        browser.wait_for("document.querySelector('.question').textContent.includes('onerror')")
        browser.wait_for(f"{HEARD} > 1")
        (directory,) = known_runs(tmp_path / "runs")
        browser.value(f"{NODE}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
        _make(browser, "handover", "60s")
        browser.wait_for(f"{MEDIA}.some((text) => /cell-1 up: busy [1-9]/.test(text))")
        options = "[...document.querySelectorAll('.menu option')].map((each) => each.textContent)"
        browser.value("document.querySelector('.menu select').dispatchEvent(new Event('change'))")
        assert browser.value(f"{options}.filter((name) => name.startsWith('cell'))") == ["cell-0"]
        browser.value("document.querySelector('.panel .title button').click()")
        edge = "document.querySelector('[data-node=\"edge-0\"]')"
        browser.value(f"{edge}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
        assert not browser.value(f"{options}.includes('handover')")
        browser.value("document.querySelector('.panel .title button').click()")
        browser.value(f"{NODE}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
        _make(browser, "crash", "60s")
        browser.wait_for(f"{NODE}.dataset.state === 'crashed'")
        _make(browser, "join", None, refused=True)
        browser.value("document.querySelector('.panel .title button').click()")
        link = "[...document.querySelectorAll('.links g')].find(e => e.textContent.startsWith('cloud – edge-0'))"
        browser.value(f"{link}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
        _make(browser, "partition", "60s")
        browser.wait_for(f"{link}.querySelector('.link').dataset.state === 'cut'")
        with History.open(directory.path) as history:
            made = [(event.data["via"], event.data["written"]) for event in history.events("injected")]
            assert [span.by for span in history.faults()] == [user_name(os.geteuid())] * 3
        assert [via for via, _ in made] == ["the page"] * 3
        assert made[1][1] | {"at": None} == {"at": None, "action": "crash", "node": "device-0-1", "for": "60s"}
        browser.value("document.querySelector('.panel .title button').click()")
        browser.value("document.querySelector('#faults details:last-child summary').click()")
        browser.wait_for("document.querySelectorAll('#faults pre')[0].textContent.split('# manual').length === 4")
        again = "document.querySelector('#faults details:last-child')"
        browser.click(f"{again}.querySelector('button')")
        browser.wait_for(f"{again}.querySelector('[role=status]').textContent === 'copied'")
        assert browser.clipboard() == browser.value(f"{again}.querySelector('pre').textContent")
        pace = "document.querySelector('header form')"
        browser.value(f"[...{pace}.querySelectorAll('button')].find(e => e.textContent === 'Pause').click()")
        browser.wait_for(f"{pace}.querySelector('.answer').textContent.startsWith('pause, at ')")
        browser.value(f"[...{pace}.querySelectorAll('button')].find(e => e.textContent === 'Free').click()")
        browser.wait_for(f"{pace}.querySelector('.answer').textContent.startsWith('free, at ')")
        assert browser.errors == [refusal for refusal in browser.errors if "400" in refusal]  # of the join
        assert browser.value("document.images.length") == 0
        run.send_signal(signal.SIGINT)
        run.send_signal(signal.SIGINT)
        run.wait(20)
        reading.join()
    finally:
        run.kill()
        run.wait()
        run.stderr.close()


def test_the_page_of_many_nodes(tmp_path: Path, browser: Tab) -> None:
    """298 nodes: devices are drawn together, and what was carried is summed up to the totals of the record."""
    path = Example(edges=9, devices_per_edge=32, rounds=12, devices_report=True).build(tmp_path / "runs" / "many")
    kinds = "document.querySelector('[aria-label^=\"Messages sent\"]').textContent"
    with History.open(path) as history:
        sent = volumes.messages_by_kind(history)
    assert sent
    with Server(tmp_path / "runs") as server:
        browser.look(1400, 1000)
        browser.open(server.address_of(f"/run/{path.name}"))
        browser.wait_for("document.querySelectorAll('.topology .node').length === 298")
        browser.wait_for("document.querySelectorAll('#accuracy-time .line').length > 0")
        legend = browser.value("document.querySelector('#accuracy-time').textContent")
        for kind, count in sent.items():
            browser.wait_for(f"{kinds}.includes('{kind}{count:,}')")
    assert "288 devices: range" in legend
    assert "288 devices: mean" in legend
    assert browser.errors == []


def _make(browser: Tab, action: str, lasts: str | None, *, refused: bool = False) -> None:
    """Ask for a fault by the menu of the panel that is open, and wait for the answer."""
    browser.value(
        "(() => { const form = document.querySelector('.menu'), choice = form.querySelector('select');"
        f" choice.value = {json.dumps(action)}; choice.dispatchEvent(new Event('change'));"
        f" form.querySelector('input').value = {json.dumps(lasts or '')}; form.requestSubmit(); }})()"
    )
    took = browser.wait_for(f"document.querySelector('.menu .answer.{'fail' if refused else 'done'}')")
    assert took < LAG
    said = browser.value("document.querySelector('.menu .answer').textContent")
    assert refused or re.match(rf"fault \d+: {action} .* took effect at [\d.]+ s of training", said)


def _read(stream: IO[str], kept: threading.Event) -> None:
    """Read to the end. ``kept`` is set when the run is over and its page stays."""
    for line in stream:
        if line.startswith("the page stays"):
            kept.set()


def test_the_page_draws_what_programs_report(tmp_path: Path, browser: Tab) -> None:
    path = Example(ending="programs").build(tmp_path / "runs" / "programs")
    program = {"label": "cloud", "node": "cloud", "command": ["serve"], "after": [], "ends_the_run": True}
    (path / "plan.json").write_text(json.dumps(json.loads((path / "plan.json").read_text()) | {"programs": [program]}))
    with contextlib.closing(sqlite3.connect(path / "run.db")) as record, record:
        rows = [(float(t), "cloud", t, "global", "bleu", 10.0 * t) for t in range(1, 4)]
        record.executemany("INSERT INTO metric (t, node, round, scope, name, value) VALUES (?, ?, ?, ?, ?, ?)", rows)
    record.close()
    with Server(tmp_path / "runs") as server:
        browser.look(1400, 1000)
        browser.open(server.address_of(f"/run/{path.name}"))
        browser.wait_for("document.querySelectorAll('#metric-0 .line').length > 0")
        assert "bleu" in browser.value("document.querySelector('#learning').textContent")
        browser.wait_for("![...document.querySelectorAll('figure')].some((e) => e.textContent.includes('nothing yet'))")
