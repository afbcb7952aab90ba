"""Faults of the suite on a service over plain TCP, in virtual time: their effects follow from Linux's timers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.drivers.virtual.kernel import BUILD, built_kernel
from orchestrator.limits.fault_effects import Effects
from orchestrator.limits.suite import load_suite, runs_of
from orchestrator.sweep.sweeper import Sweeper
from tests.e2e.harness import ROOT, command
from tests.programs import give_up

pytestmark = [pytest.mark.e2e, pytest.mark.virtual]

STUDY = f"""\
scenario: {ROOT}/scenarios/peers/messages-tcp.yaml
faults: {{watch: 20s}}
"""
VIRTUAL = "driver=virtual"


@pytest.fixture(scope="module")
def kernel() -> None:
    if built_kernel() is None:
        give_up(f"needs a kernel for guests: {BUILD}")


def effects_of(fault: str, runs: Path) -> Effects:
    """Make the run of a fault, as a user does, and read its effects."""
    study = runs / "tcp.yaml"
    study.write_text(STUDY)
    suite = load_suite(study, [VIRTUAL])
    number = [task.fault for task in suite.tasks].index(fault)
    words = command("limits", study, "--faults", "--set", VIRTUAL, "--task", str(number), "--runs", runs)
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    sweeper = Sweeper(suite.sweep, runs / suite.sweep.name, None, lambda _: None)
    (run,) = runs_of(suite, sweeper)
    assert (run.task.fault, run.verdict) == (fault, "pass")
    return run.effects


@pytest.mark.usefixtures("kernel")
def test_a_cut_of_five_seconds_loses_nothing(tmp_path: Path) -> None:
    """Linux sends again 0.2, 0.4, 0.8, 1.6 and 3.2 s later: 6.2 to 7 s after the first loss, which is up to 0.5 s after
    its start."""
    of_run = effects_of("cut-5", tmp_path)
    assert of_run.noticed == {}
    for direction in (of_run.up, of_run.down):
        assert direction is not None
        assert (direction.lost, direction.twice) == (0, 0)
        assert direction.back is not None
        assert 1.2 <= direction.back <= 2.8


@pytest.mark.usefixtures("kernel")
def test_a_server_notices_a_power_cycle_when_the_client_is_back(tmp_path: Path) -> None:
    """The client's kernel answers the next repetition with a reset, and what was sent meanwhile is lost: two messages a
    second from the fault to that repetition, 12.8 to 14 s after it."""
    of_run = effects_of("power-cycle", tmp_path)
    assert 10.0 <= of_run.noticed["cloud"] <= 15.0
    assert of_run.down is not None
    assert 20 <= of_run.down.lost <= 32
    assert of_run.down.back is not None
    assert of_run.down.back < 5.0
