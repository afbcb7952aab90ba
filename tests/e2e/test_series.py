"""Runs of one command, one after the other: what they share, and that each leaves nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.record.directory import known_runs
from orchestrator.results.checks.registry import checks
from orchestrator.results.history import History
from orchestrator.run.links.earlier_measurements import OF_THE_HOST
from tests.e2e.harness import command, traces_of

pytestmark = pytest.mark.e2e

SCENARIO = """\
topology: {edges: 0, devices: 2, cloud: true}
links: {device-cloud: {latency: 5ms}}
programs:
  cloud: {command: "true"}
  device: {command: "true"}
"""
SWEEP = """\
scenario: base.yaml
vary: {links.device-cloud.latency: [5ms, 6ms]}
seeds: [1, 2]
"""


def host_was_late(history: History) -> bool:
    """Whether a check of the host has failed."""
    return any(check["verdict"] == "fail" and check["name"] in OF_THE_HOST for check in checks(history))


def may_stand_for_others(history: History) -> bool:
    """Whether later runs may take over what this run has measured."""
    return all(probe.verdict == "pass" for probe in history.probes())


def test_links_are_measured_in_the_first_run_of_a_sweep_that_has_them(tmp_path: Path) -> None:
    """Of four runs, two have links of 5 ms and two have links of 6 ms."""
    (tmp_path / "base.yaml").write_text(SCENARIO)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    words = command("sweep", "sweep.yaml", "--runs", "runs", "--json")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    runs = known_runs(tmp_path / "runs" / "sweep")
    assert len(runs) == 4, done.stderr
    standing: dict[str, str] = {}  # the run that has measured a latency, for later ones
    for run in runs:
        with History.open(run.path) as history:
            latency = history.plan["links"][0]["profile"]["latency"]
            assert {probe.measured_in for probe in history.probes()} == {standing.get(latency)}
            assert traces_of(history.run) == []
            if host_was_late(history):
                standing.clear()
            elif may_stand_for_others(history):
                standing.setdefault(latency, history.run)
