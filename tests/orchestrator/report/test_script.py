"""The script of the page in a headless Chromium: what it draws, what keys and buttons do, and that nothing fails."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchestrator.record.writer import Record
from orchestrator.report import render
from orchestrator.results.history import History
from tests.orchestrator.example_run import Example

ATTACK = "</title><img src=x onerror=alert(1)>"
LISTEN = """<script>
const errors = [];
addEventListener("error", (event) => errors.push(String(event.message)));
addEventListener("securitypolicyviolation", (event) => errors.push(event.violatedDirective + event.blockedURI));
</script>"""
ASK = """<script>
addEventListener("load", () => setTimeout(() => {
  const told = {}, chart = charts["accuracy-rounds"], key = (name) =>
    chart.svg.dispatchEvent(new KeyboardEvent("keydown", {key: name, bubbles: true}));
  const drawn = (id) => charts[id].svg.querySelectorAll("path, rect, circle").length;
  told.drawn = Object.fromEntries(Object.keys(charts).map((id) => [id, drawn(id)]));
  told.label = chart.svg.getAttribute("aria-label");
  chart.svg.focus();
  key("ArrowRight");
  told.first = chart.spoken.textContent;
  key("End");
  told.last = chart.spoken.textContent;
  key("+");
  told.zoomed = [chart.frame.low, chart.frame.high];
  told.focus = document.activeElement === chart.svg;
  for (let press = 0; press < 60; press++) key("+");
  key("0");
  told.whole = [chart.frame.low, chart.frame.high];
  const lines = () => chart.svg.querySelectorAll(".line").length, before = lines();
  const entry = chart.entries.firstElementChild;
  entry.click();
  told.legend = [before - lines(), entry.getAttribute("aria-pressed"), entry.textContent];
  entry.click();
  chart.table.click();
  told.rows = chart.behind.querySelectorAll("tbody tr").length;
  told.svg = new DOMParser().parseFromString(standalone(chart), "image/svg+xml").documentElement.nodeName;
  const slider = document.getElementById("moment");
  slider.value = 10;
  slider.dispatchEvent(new Event("input"));
  told.crashed = [...document.querySelectorAll('[data-state="crashed"]')].map((each) => each.dataset.node);
  told.moment = document.getElementById("moment-said").textContent;
  told.images = document.images.length;
  const texts = [...document.querySelectorAll("svg text, button")].map((each) => each.textContent);
  told.texts = texts.filter((each) => each.includes("onerror")).length;
  drawFigures({"accuracy-rounds": {...chart.figure, title: "drawn anew"}});
  told.updated = [charts["accuracy-rounds"] === chart, chart.title.textContent];
  told.errors = errors;
  const out = document.createElement("pre");
  out.id = "told";
  out.textContent = JSON.stringify(told);
  document.body.append(out);
}, 200));
</script></body>"""


def asked(page: str, folder: Path) -> dict[str, Any]:
    """What the page answers to the script above."""
    (folder / "page.html").write_text(page.replace("<body>", f"<body>{LISTEN}").replace("</body>", ASK))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--window-size=1200,900"]
    command = [
        "chromium",
        *options,
        f"--user-data-dir={folder / 'profile'}",
        "--dump-dom",
        f"file://{folder}/page.html",
    ]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    (found,) = re.findall(r'<pre id="told">(.*?)</pre>', said, re.DOTALL)
    told: dict[str, Any] = json.loads(html.unescape(found))
    return told


@pytest.mark.slow
@pytest.mark.programs("chromium")
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    run = Example(rounds_made=8, ending=None).build(tmp_path / "run")
    plan = run / "plan.json"
    plan.write_text(plan.read_text().replace('"name": "dropout"', json.dumps({"name": ATTACK})[1:-1]))
    record = Record.resume(run, 60.0, "killed", 8)
    record.traffic(
        61.0, "edge-0", [{"peer": "cloud", "kind": ATTACK, "direction": "sent", "messages": 1, "bytes": 9000000}]
    )
    record.state(61.0, "edge-0", "failed", ATTACK)
    record.outcome(62.0, {"ended": "interrupted"})
    record.close()
    with History.open(run) as history:
        told = asked(render(history), tmp_path)
        accuracy = [round(1000 * metric.value) / 10 for metric in history.global_series("accuracy")]
    assert told["errors"] == []
    assert {"accuracy-time", "loss-rounds", "timeline", "traffic"} <= told["drawn"].keys()
    assert min(told["drawn"].values()) > 5
    assert told["label"].startswith("Accuracy by round, against round. edge-0 from ")
    assert told["first"].startswith("round 1; ")
    assert f"global: {accuracy[0]:g}%" in told["first"]
    assert f"round {len(accuracy)}; " in told["last"]
    assert f"global: {accuracy[-1]:g}%" in told["last"]
    low, high = told["zoomed"]
    assert told["whole"][1] - told["whole"][0] == pytest.approx(2 * (high - low))
    assert told["focus"]
    assert told["legend"] == [1, "false", "edge-0"]
    assert told["rows"] >= 4 * len(accuracy)
    assert told["svg"] == "svg"
    assert told["crashed"] == ["device-1-2"]  # from 9 s to 16 s of training
    assert told["moment"] == "10.0 s, round 3"
    assert told["images"] == 0
    assert told["texts"] > 0
    assert told["updated"] == [True, "drawn anew"]
