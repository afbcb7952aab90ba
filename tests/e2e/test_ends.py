"""However a command ends: nobody reads it, a signal comes at any moment, its terminal goes away."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.host.process.processes import run_processes
from orchestrator.host.process.signals import INTERRUPTED
from orchestrator.record.directory import RunDirectory, known_runs
from orchestrator.results.history import History
from tests.e2e.harness import FEW, OWN_MOUNTS, PACED, ROOT, Background, command, traces_of, wait_for, write
from tests.orchestrator.example_run import Example
from tests.texts import containing

pytestmark = pytest.mark.e2e

UNPROBED = f"{FEW}probe: {{before: false}}\n"
LONG = UNPROBED.replace("rounds: 3", "rounds: 100000") + PACED
SHORT = UNPROBED.replace("rounds: 3", "rounds: 1")
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]


def only_run(runs: Path) -> RunDirectory:
    (directory,) = known_runs(runs)
    return directory


def is_tidy(directory: RunDirectory) -> bool:
    """No secret key is left, nor a complaint of a defect, nor anything on the host."""
    assert not directory.nodes.exists()
    assert not directory.control.exists()
    assert not (directory.logs / "orchestrator.log").exists()
    return traces_of(directory.run) == []


def ended(directory: RunDirectory) -> str:
    with History.open(directory.path) as history:
        assert history.outcome is not None
        return history.outcome.ended


def states(directory: RunDirectory) -> set[str]:
    with History.open(directory.path) as history:
        return {state.state for state in history.current_states().values()}


@pytest.mark.parametrize("redirected", ["--json 2>&1 | true", ">&- 2>&- <&-"])
def test_output_that_no_one_reads_ends_nothing(tmp_path: Path, redirected: str) -> None:
    path = write(tmp_path, SHORT)
    line = f'set -o pipefail; "$@" {redirected}'
    done = subprocess.run(
        ["bash", "-c", line, "bash", *command("up", path, "--runs", tmp_path / "runs", "--driver", "sim")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr
    assert ended(only_run(tmp_path / "runs")) == "rounds"
    assert is_tidy(only_run(tmp_path / "runs"))


def test_a_full_disk_under_standard_output_is_reported(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command("validate", "--quiet", write(tmp_path, SHORT)),
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, containing("error: standard output cannot"))


@pytest.mark.parametrize("controlling", [False, True])
def test_a_terminal_that_goes_away(tmp_path: Path, controlling: bool) -> None:
    """Without more it is output that nobody reads; to whom it is the controlling terminal the kernel sends SIGHUP."""
    runs, path = tmp_path / "runs", write(tmp_path, LONG if controlling else UNPROBED)
    master, slave = os.openpty()
    arguments = command("up", path, "--runs", runs, "--driver", "sim")
    process = subprocess.Popen(
        ["setsid", *(["--ctty"] if controlling else []), *arguments], cwd=ROOT, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    wait_for(lambda: known_runs(runs) or None, "the run's directory")
    os.close(master)
    assert process.wait(30) == (INTERRUPTED if controlling else 0)
    assert ended(only_run(runs)) == ("interrupted" if controlling else "rounds")
    assert is_tidy(only_run(runs))
    assert only_run(runs).report.exists()


def test_a_signal_at_any_moment(tmp_path: Path) -> None:
    """From the imports over planning and starting the nodes to the training, and while the run is being judged."""
    path = write(tmp_path, SHORT)
    began = time.monotonic()
    subprocess.run(
        command("up", path, "--runs", tmp_path / "whole", "--driver", "sim"), cwd=ROOT, capture_output=True, check=True
    )
    whole = time.monotonic() - began
    for part in range(len(SIGNALS)):
        runs = tmp_path / f"runs-{part}"
        # Python's own start is not ours to guard: the command says when it has begun.
        process = subprocess.Popen(
            [sys.executable, "-c", STARTED, "up", str(path), "--runs", str(runs), "--driver", "sim"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        time.sleep(whole * part / len(SIGNALS))
        process.send_signal(SIGNALS[part])
        _, errors = process.communicate(timeout=30)
        assert process.returncode in (INTERRUPTED, 0), errors
        assert "Traceback" not in errors
        assert "Exception ignored" not in errors
        if process.returncode == INTERRUPTED:
            assert re.fullmatch(r"(\s*error: interrupted\n)?", errors), errors
        for directory in known_runs(runs):
            assert is_tidy(directory)
            assert directory.report.exists()
        assert [path.name for path in runs.glob("*")] == [each.run for each in known_runs(runs)]


STARTED = """
import sys
from orchestrator.host.process import signals
install = signals.raise_on_signals
def told():
    install()
    print("started", flush=True)
signals.raise_on_signals = told
from orchestrator.__main__ import main
main()
"""


def test_ctrl_c_in_the_middle_of_a_simulation(tmp_path: Path) -> None:
    with Background(tmp_path, LONG, "--driver", "sim") as run:
        run.wait_round(2)
        run.process.send_signal(signal.SIGINT)
        result = run.result(timeout=30)
        assert (result.code, result.summary["ended"]) == (INTERRUPTED, "interrupted")
        assert result.summary["rounds"] >= 1
        assert "error" not in result.errors
        assert "Traceback" not in result.errors
        assert ended(run.directory) == "interrupted"
        assert run.directory.report.exists()
        assert is_tidy(run.directory)


def test_a_signal_to_all_processes_interrupts_a_run(tmp_path: Path) -> None:
    """Slurm ends a job so."""
    with Background(tmp_path, LONG) as run:
        run.wait_round(2)
        for each in run_processes(run.directory.run):
            os.kill(each.pid, signal.SIGTERM)
        run.process.terminate()
        assert run.process.wait(timeout=30) == INTERRUPTED
        assert ended(run.directory) == "interrupted"
        assert is_tidy(run.directory)


@pytest.mark.parametrize("wait", [0.0, 0.5])
def test_a_signal_before_any_node_has_started(tmp_path: Path, wait: float) -> None:
    """While the hub, the fork server and the link engine are being opened."""
    with Background(tmp_path, UNPROBED) as run:
        name = run.directory.run
        time.sleep(wait)
        run.process.send_signal(signal.SIGTERM)
        result = run.result(timeout=30)
        assert (result.code, result.summary["ended"]) == (INTERRUPTED, "interrupted"), result.errors
        assert "error" not in result.errors
        assert traces_of(name) == []
        assert is_tidy(run.directory)


def test_a_second_ctrl_c_ends_a_run_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    with Background(tmp_path, LONG) as run:
        run.wait_round(2)
        name = run.directory.run
        os.kill(run.pid_of("cloud"), signal.SIGSTOP)  # it does not hear that it should end, and is waited for
        run.process.send_signal(signal.SIGINT)
        wait_for(lambda: "done" in states(run.directory) or None, "a node that heard it")
        run.process.send_signal(signal.SIGINT)
        result = run.result(timeout=30)
        assert (result.code, result.summary) == (INTERRUPTED, {})
        assert traces_of(name) == []
        assert ended(run.directory) == "interrupted"
        assert run.directory.report.exists()
        assert is_tidy(run.directory)


def test_an_interrupted_sweep_has_the_same_exit_code(tmp_path: Path) -> None:
    write(tmp_path, LONG)
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text("scenario: scenario.yaml\nseeds: [1, 2]\n")
    runs = tmp_path / "runs"
    process = subprocess.Popen(
        command("sweep", sweep, "--runs", runs, "--driver", "sim"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: known_runs(runs / "sweep") or None, "the first run")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == INTERRUPTED, errors
    assert len(known_runs(runs / "sweep")) == 1


@pytest.mark.parametrize("verb", ["resume", "report"])
def test_a_run_in_a_folder_that_may_only_be_read(tmp_path: Path, verb: str) -> None:
    runs = tmp_path / "runs"
    directory = Example(edges=1, devices_per_edge=1, rounds=2, ending="interrupted").build(runs / "old")
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    done = subprocess.run(
        [*OWN_MOUNTS, "sh", "-c", script, runs, *command(verb, "old", "--runs", runs)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (2 if verb == "resume" else 1)
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"error: {'nothing can be written in ' if verb == 'resume' else ''}{directory}")
    assert "Read-only file system" in done.stderr
