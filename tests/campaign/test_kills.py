"""Tests of some random kills on real nodes, and of the detection of leftovers."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from orchestrator.host.process.processes import labels, run_processes
from orchestrator.record.directory import RunDirectory
from tests.campaign import kills
from tests.campaign.kills import carry_out, drawn, interfaces
from tests.e2e.harness import wait_for
from tests.orchestrator.example_run import Example


@pytest.mark.e2e
def test_a_run_survives_a_random_kill_or_ends_as_documented() -> None:
    kill = drawn(15, "namespaces")
    assert carry_out(kill) == [], kill


def test_every_part_and_tier_is_struck_by_some_kill() -> None:
    some = [drawn(seed, "namespaces") for seed in range(1, 100)]
    assert {kill.victim for kill in some} == {"orchestrator", *kills.PARTS["namespaces"], *kills.TIERS}
    signals = {each for kill in some for each in kill.signals}
    assert signals == {signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGCONT}


@pytest.mark.slow
def test_a_process_that_outlives_its_run_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "GONE", 0.1)
    directory = RunDirectory(Example(ending="rounds").build(tmp_path / "runs" / "left"))
    with subprocess.Popen(["sleep", "60"], env=os.environ | labels(directory.run, directory.path, "node")) as process:
        try:
            wait_for(lambda: run_processes(directory.run) or None, "the kernel to show its environment")
            assert kills._left(directory, interfaces()) == [f"left on the host: {process.pid} sleep"]
        finally:
            process.kill()
