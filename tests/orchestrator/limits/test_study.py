"""Whole studies, under `sim` and with programs, through the command line."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.limits import study
from orchestrator.record.directory import known_runs
from tests.e2e.harness import command, wait_for

SCENARIO = """\
driver: sim
algorithm: {name: fedavg, rounds: 2, learning_rate: 0.1}
data: {dataset: digits, samples_per_client: 40, evaluate_samples: 40}
model: mlp
topology: {devices: 2}
links: {device-cloud: {latency: 5ms}}
"""
STUDY = """\
# Which latency do two rounds survive?
scenario: base.yaml
survives: {within: 30s}
axes: {latency: {from: 500ms, to: 5s}}
require: {latency: 500ms}
"""


pytestmark = pytest.mark.slow


def written(folder: Path) -> Path:
    (folder / "base.yaml").write_text(SCENARIO)
    (folder / "study.yaml").write_text(STUDY)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs of a whole study, from one process for each search."""
    folder = written(tmp_path_factory.mktemp("whole"))
    subprocess.run(command("limits", "study.yaml", "--parallel", "2"), cwd=folder, check=True, capture_output=True)
    shutil.copy(folder / "runs" / "study" / "limits.json", folder / "first.json")
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return written(tmp_path)


def limits(*words: str, code: int = 0) -> Any:
    result = CliRunner().invoke(cli, ["limits", *words, "--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def chosen(facts: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: facts[key] for key in keys}


def values(found: Any) -> list[Any]:
    """What a study found, without the names and times of its runs."""
    kept = []
    for limit in found["limits"]:
        runs = [chosen(run, "value", "survived", "kind", "seconds", "accuracy") for run in limit["runs"]]
        kept.append({**chosen(limit, "axis", "kind", "low", "high", "met"), "runs": runs})
    return kept


def test_a_study_finds_the_limit_and_continues_from_its_runs(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(whole)
    runs = whole / "runs" / "study"
    before = len(known_runs(runs))
    found = limits("study.yaml", "--junit", "junit.xml")
    assert len(known_runs(runs)) == before
    (limit,) = found["limits"]
    assert limit["kind"] == "between"
    assert limit["met"] is True
    assert limit["failure"] == "slow"
    # A round crosses the links at least four times (task and answer, each acknowledged), so two rounds
    # within 30 s end below 3.75 s each way.
    assert 0.5 <= limit["low"] < limit["high"] < 3.75
    assert limit["high"] / limit["low"] < 1.11
    assert before == len(limit["runs"]) + 2
    page = (runs / "limits.html").read_text()
    assert "Which latency do two rounds survive?" in page
    assert f"{limit['runs'][0]['run']}/report.html" in page
    assert len((runs / "limits.csv").read_text().splitlines()) == 1 + len(limit["runs"])
    assert ET.parse(whole / "junit.xml").getroot().get("failures") == "0"


def test_two_studies_on_one_page(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(whole)
    shutil.copy("study.yaml", "other.yaml")
    refused = CliRunner().invoke(cli, ["limits", "study.yaml", "--beside", "other.yaml"])
    assert "has no runs of other.yaml: make them first" in str(refused.exception)
    shutil.copytree("runs/study", "runs/other")
    made = CliRunner().invoke(cli, ["limits", "study.yaml", "--beside", "other.yaml"])
    assert made.exit_code == 0, made.output
    page = Path("runs/study/limits.html").read_text()
    assert page.count('<svg class="strip"') == 2
    links = re.findall(r'href="(\.\./other/[^"]+)"', page)
    assert links
    assert all(Path("runs/study", link).exists() for link in links)
    shutil.rmtree("runs/other")


def test_a_missed_requirement_is_exit_code_3(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(whole)
    harder = whole / "harder.yaml"
    harder.write_text(f"name: study\n{STUDY.replace('latency: 500ms', 'latency: 4s')}")
    found = limits("harder.yaml", "--junit", "junit.xml", code=3)
    assert found["limits"][0]["met"] is False
    failure = next(ET.parse(whole / "junit.xml").getroot().iter("failure"))
    assert "4s must survive" in str(failure.text)


def test_a_killed_study_gives_the_same_digits(whole: Path, folder: Path) -> None:
    """SIGKILL after some runs, then repeated: the same table as another study of the same file."""
    runs = folder / "runs" / "study"
    words = command("limits", "study.yaml")
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: runs.is_dir() and len(known_runs(runs)) >= 4, "four runs")
        process.send_signal(signal.SIGKILL)
    other = json.loads((whole / "first.json").read_text())
    assert values(limits("study.yaml")) == values(other)


def test_a_budget_ends_a_study(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unimpaired runs use it up."""
    monkeypatch.setattr(study, "LEAST_BUDGET", 0.0)
    (folder / "study.yaml").write_text(f"{STUDY}budget: 1ms\n")
    found = limits("study.yaml", "--junit", "junit.xml", code=3)
    assert found["ended"] == "budget"
    assert found["missing"] == ["default: latency"]
    assert found["limits"][0]["runs"] == []
    assert "was used up" in (folder / "runs" / "study" / "limits.html").read_text()
    assert ET.parse(folder / "junit.xml").getroot().get("skipped") == "1"


def test_runs_that_are_there_need_no_budget(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(whole)
    monkeypatch.setattr(study, "LEAST_BUDGET", 0.0)
    (whole / "short.yaml").write_text(f"name: study\n{STUDY}budget: 1ms\n")
    found = limits("short.yaml")
    assert found["ended"] is None
    assert values(found) == values(json.loads((whole / "first.json").read_text()))


def test_other_axes_keep_their_runs(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(whole)
    two = STUDY.replace("axes: {", "axes: {outage: {}, ")
    (whole / "two.yaml").write_text(f"name: study\n{two}")
    found = limits("two.yaml", "--axis", "latency")
    assert [limit["axis"] for limit in found["limits"]] == ["latency"]  # of the outage there is no run
    (whole / "two.yaml").write_text(f"name: study\n{two.replace('outage: {}', 'outage: {for: {from: 1s, to: 2s}}')}")
    found = limits("two.yaml", "--axis", "outage")
    assert [limit["axis"] for limit in found["limits"]] == ["latency", "outage"]
    assert all(limit["kind"] for limit in found["limits"])


def test_a_budget_below_three_unimpaired_runs_is_refused(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(whole)
    (whole / "tiny.yaml").write_text(f"name: study\n{STUDY}budget: 1ms\n")
    result = CliRunner().invoke(cli, ["limits", "tiny.yaml"], standalone_mode=False)
    assert "budget" in str(result.exception)


def test_an_unimpaired_run_that_fails_ends_the_study(folder: Path) -> None:
    (folder / "base.yaml").write_text(f"{SCENARIO}expect: {{accuracy: 99.9%}}\n")
    result = CliRunner().invoke(cli, ["limits", "study.yaml"], standalone_mode=False)
    assert "without impairment" in str(result.exception)
    assert "result as expected" in str(result.exception)


def test_validate_reads_a_study(folder: Path) -> None:
    result = CliRunner().invoke(cli, ["validate", "study.yaml"])
    assert result.output.strip() == "study.yaml: valid (1 axis, 1 case: 1 search)"


def test_shipped_studies_are_listed() -> None:
    result = CliRunner().invoke(cli, ["limits", "--list"])
    assert result.exit_code == 0
    assert "limits/tcp" in result.output
    assert "edgebed limits NAME" in result.output
