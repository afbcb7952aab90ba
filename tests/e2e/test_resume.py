"""`resume`: a run that was killed or interrupted goes on where it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.results.history import History
from tests.e2e.harness import ROOT, SMALL, Background, command, json_of, resume, traces_of, up, wait_for

pytestmark = pytest.mark.e2e

LONGER = SMALL.replace("rounds: 3", "rounds: 8").replace("kappa1: 4", "epochs: 3")
FAR = LONGER.replace("rounds: 8", "rounds: 12").replace(
    "latency: 10ms", "latency: 40ms"
)  # a round takes half a second or more
FAULTS = """\
faults:
  - {round: 2, node: device-0-0, action: leave}
  - {round: 3, between: [device-1-0, edge-1], action: partition, for: 2s}
gathering: {quorum: 50%, deadline: 2s}
timeouts: {beat: 500ms, lost_after: 2s}
"""


def accuracies(run: Path) -> dict[int | None, float]:
    with closing(History.open(run)) as history:
        return {metric.round: metric.value for metric in history.global_series("accuracy")}


def is_alive(pid: str) -> bool:
    """Whether the process runs; one that has ended waits, as a zombie, for somebody to ask about it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_killed_simulation_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    whole = up(tmp_path / "whole", LONGER, "--driver", "sim")
    with Background(tmp_path / "cut", LONGER, "--driver", "sim", "--workers", "2") as run:
        run.wait_round(4)
        pid = run.process.pid
        workers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        assert len(workers) == 2
        os.kill(pid, signal.SIGKILL)
        run.process.wait()
        wait_for(lambda: None if any(is_alive(worker) for worker in workers) else True, "the workers to end", 10.0)
        with ThreadPoolExecutor(2) as both:  # one of them has it, the other touches nothing of it
            attempts = [both.submit(resume, run.directory, "--workers", "1") for _ in range(2)]
            again, late = sorted((each.result() for each in attempts), key=lambda each: each.code)
        assert late.code == 1
        assert "is still running" in late.errors or "is complete" in late.errors
        assert (again.code, again.summary["verdict"], again.summary["rounds"]) == (0, "pass", 8), again.errors
        # "[     0.5 s virtual (   2.3 s)] starting 7 nodes (model links)"
        first = next(line for line in again.errors.splitlines() if "starting" in line)
        assert float(first.split()[1]) > 0, first  # the time goes on, and does not begin anew
        expected = accuracies(Path(whole.summary["run"]))
        made = accuracies(run.directory.path)  # what the first orchestrator had not yet written is missing
        assert made == {round: expected[round] for round in made}
        assert set(made) >= set(range(6, 9))
        assert again.summary["accuracy"] == whole.summary["accuracy"]
        # There is nothing more to do.
        refused = resume(run.directory)
        assert refused.code == 1
        assert "is complete (8 rounds" in refused.errors


def test_an_interrupted_run_has_its_faults_again(tmp_path: Path) -> None:
    with Background(tmp_path, FAR + FAULTS) as run:
        run.wait_round(4)
        run.process.send_signal(signal.SIGINT)
        assert run.result().summary["ended"] == "interrupted"
        again = resume(run.directory)
        assert again.code in (0, 3), again.summary  # 3: a host that is busy with something else
        assert (again.summary["ended"], again.summary["rounds"]) == ("rounds", 12)
        # One fault each, though the second was made twice: it was cut in two by the interruption.
        assert [fault["action"] for fault in again.summary["faults"]] == ["leave", "partition"]
        with closing(run.history()) as history:
            (cut,) = (span for span in history.faults() if span.action == "partition")
            assert cut.start is not None
            assert cut.end is not None
            assert cut.end - cut.start == pytest.approx(2.0, abs=0.5)  # on the run's clock, which stood still
            assert history.current_states()["device-0-0"].state == "left"
            assert [event.data for event in history.events("continued")] == [{"ended": "interrupted"}]
        assert "continued after round" in (run.directory.path / "report.html").read_text()
        assert traces_of(run.directory.run) == []


def test_a_run_is_continued_without_the_files_that_its_scenario_names(tmp_path: Path) -> None:
    trace = tmp_path / "run.db"  # a name that the run's directory has for something else
    trace.write_text("1\n5\n9\n")
    scheduled = LONGER.replace("rounds: 8", "rounds: 100000").replace(
        "rate: 20mbit}", "rate: 20mbit, schedule: {trace: run.db}}"
    )
    with Background(tmp_path, scheduled, "--driver", "sim", "--pace", "1x") as run:
        run.wait_round(3)
        run.process.send_signal(signal.SIGINT)
        assert run.result().summary["ended"] == "interrupted"
        trace.unlink()
        again = subprocess.Popen(command("resume", run.directory.path, "--json"), cwd=ROOT, stdout=subprocess.PIPE)
        wait_for(lambda: json_of("report", run.directory.path)["ended"] is None or None, "the run to go on")
        run.wait_round(5)
        again.send_signal(signal.SIGINT)
        output, _ = again.communicate(timeout=30)
        assert (again.returncode, json.loads(output)["ended"]) == (130, "interrupted")
