"""Runs in a guest kernel whose clock jumps to the next timer. They are one after the other: a guest takes 3 GB."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from orchestrator.drivers.virtual.guest import FOLDER, PART
from orchestrator.drivers.virtual.kernel import BUILD, built_kernel
from orchestrator.host.process.processes import run_processes
from orchestrator.record.directory import RunDirectory, known_runs
from orchestrator.record.schema import DATABASE, TABLES
from tests.e2e.harness import FEW, ROOT, Background, Result, command, json_of, resume, traces_of, up, wait_for
from tests.programs import give_up

pytestmark = [pytest.mark.e2e, pytest.mark.virtual]

SCENARIOS = ROOT / "scenarios"
HOUR = 3600  # s
BOOT = 180.0  # s in which a guest boots and its nodes start, on a busy host
LEFT = 20.0  # s in which all processes of a killed run end
DIFFERING_META = ("started", "command")
OF_HOST = ("resources", "sensor")
"""Tables with what a run took from the host."""

SLEEPING = f"""\
name: sleeping
topology: {{edges: 0, devices: 1}}
links: {{device-cloud: {{latency: 10ms}}}}
restart: never
programs:
  cloud:
    command: sh -c "echo awake; sleep {HOUR}; until test -e /tmp/end; do sleep 60; done"
    ends_the_run: true
  device:
    command: sleep {10**9}
"""
"""A program sleeps for an hour, and then until a test tells it to end."""

SHORT_OF_MEMORY = """\
name: large
topology: {edges: 0, devices: 2}
hardware: {device: {memory: 500gib}}
programs:
  cloud: {command: sleep 1}
  device: {command: sleep 1}
"""


@pytest.fixture(scope="module")
def kernel() -> Path:
    built = built_kernel()
    if built is None:
        give_up(f"needs a kernel for guests: {BUILD}")
    assert built is not None
    return built


def up_shipped(name: str, runs: Path) -> Result:
    """`up --virtual` of a scenario of edgebed."""
    words = command("up", SCENARIOS / name, "--virtual", "--json", "--runs", runs)
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return Result(done.returncode, json.loads(done.stdout), done.stderr)


def verdicts(summary: dict[str, object]) -> dict[str, str]:
    checks = summary["checks"]
    assert isinstance(checks, list)
    return {check["name"]: check["verdict"] for check in checks}


def rows_of(directory: RunDirectory) -> dict[str, list[tuple[object, ...]]]:
    """All rows of a record by table, without what depends on the host and on when it ran."""
    rows: dict[str, list[tuple[object, ...]]] = {}
    with contextlib.closing(sqlite3.connect(directory.path / DATABASE)) as connection:
        for table in TABLES:
            if table not in OF_HOST:
                rows[table] = connection.execute(f"SELECT * FROM {table}").fetchall()
    rows["meta"] = [row for row in rows["meta"] if row[0] not in DIFFERING_META]
    ((t, facts),) = rows["outcome"]
    outcome = json.loads(str(facts))
    outcome.pop("wall_seconds")
    rows["outcome"] = [(t, outcome)]
    return rows


def nothing_is_left(directory: RunDirectory) -> bool:
    return traces_of(directory.run) == [] and not (directory.path / FOLDER).exists()


def guest_of(directory: RunDirectory) -> int:
    """The process of the guest's kernel."""
    pids = [process.pid for process in run_processes(directory.run) if process.part == PART]
    return min(pids)


def wait_awake(run: Background) -> None:
    log = run.directory.logs / "cloud.log"
    wait_for(lambda: (log.exists() and "awake" in log.read_text()) or None, "the start of the programs", BOOT)


def inside(run: Background, node: str, line: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a line of a shell in a node."""
    argv = command("exec", node, "--runs", run.runs, "--", "sh", "-c", line)
    return subprocess.run(argv, cwd=ROOT, input=given, capture_output=True, text=True, check=False)


def state_of(run: Background, node: str) -> str:
    with run.history() as history:
        return history.current_states()[node].state


@pytest.mark.usefixtures("kernel")
def test_two_runs_are_equal(tmp_path: Path) -> None:
    for _ in range(2):
        result = up_shipped("hello.yaml", tmp_path)
        assert (result.code, result.summary["verdict"]) == (0, "pass"), result.errors
        checks = verdicts(result.summary)
        assert (checks["compute on time"], checks["links on time"]) == ("modelled", "modelled")
    first, second = known_runs(tmp_path)
    rows = rows_of(first)
    assert rows["metric"]
    assert rows["flow_growth"]
    assert rows["link_growth"]
    assert rows == rows_of(second)
    assert nothing_is_left(first)
    assert nothing_is_left(second)


@pytest.mark.usefixtures("kernel")
@pytest.mark.programs("mosquitto", "mosquitto_pub")
def test_programs_of_others(tmp_path: Path) -> None:
    result = up_shipped("mqtt.yaml", tmp_path)
    assert (result.code, result.summary["verdict"]) == (0, "pass"), result.errors
    assert "compute on time" not in verdicts(result.summary)


@pytest.fixture(scope="class")
def hour(kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Background]:
    """A run of programs, whose clock goes on while the tests use it."""
    with Background(tmp_path_factory.mktemp("hour"), SLEEPING, "--virtual") as run:
        wait_awake(run)
        yield run


@pytest.mark.usefixtures("kernel")
class TestARunOfAnHour:
    """The tests are in the order of the run."""

    def test_exec_has_the_input_output_and_exit_code_of_the_command(self, hour: Background) -> None:
        done = inside(hour, "cloud", "hostname; cat; exit 5", given="in\n")
        assert (done.returncode, done.stdout) == (5, "cloud\nin\n"), done.stderr

    def test_ps_shows_the_run(self, hour: Background) -> None:
        listed = json_of("ps", "--runs", hour.runs)
        (shown,) = [run for run in listed["runs"] if run["run"] == hour.directory.run]
        assert shown["phase"] == "running"
        assert {node["state"] for node in shown["nodes"]} == {"running"}

    def test_logs(self, hour: Background) -> None:
        argv = command("logs", "cloud", "--runs", hour.runs)
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
        assert "awake" in done.stdout

    def test_a_manual_crash(self, hour: Background) -> None:
        (fault,) = json_of("inject", "crash", "device-0", "--run", hour.directory.run, "--runs", hour.runs)["faults"]
        assert fault["at"] > 0
        wait_for(lambda: state_of(hour, "device-0") == "crashed" or None, "the crash in the record")

    def test_an_hour_passes(self, hour: Background) -> None:
        assert inside(hour, "cloud", "touch /tmp/end").returncode == 0
        result = hour.result()
        assert result.code == 0, result.errors
        with hour.history() as history:
            outcome = history.outcome
        assert outcome is not None
        assert outcome.t >= HOUR
        assert nothing_is_left(hour.directory)


def test_a_killed_guest_fails_the_run(kernel: Path, tmp_path: Path) -> None:
    with Background(tmp_path, SLEEPING, "--virtual") as run:
        wait_awake(run)
        os.kill(guest_of(run.directory), signal.SIGKILL)
        result = run.result()
        assert (result.code, result.summary["ended"]) == (1, "failed")
        assert "SIGKILL" in result.summary["error"]
        assert "logs guest" in result.summary["error"]
        assert nothing_is_left(run.directory)


def test_a_run_continues_after_its_orchestrator_was_killed(kernel: Path, tmp_path: Path) -> None:
    with Background(tmp_path, FEW.replace("rounds: 3", "rounds: 15"), "--virtual") as run:
        run.wait_round(3, BOOT)
        directory = run.directory
        os.kill(run.process.pid, signal.SIGKILL)
        wait_for(lambda: traces_of(directory.run) == [] or None, "the end of the guest", LEFT)
        with run.history() as history:
            assert history.outcome is None
        result = resume(directory)
        assert (result.code, result.summary["ended"]) == (0, "rounds"), result.errors
        assert result.summary["rounds"] == 15
        with run.history() as history:
            (continued,) = history.events("continued")
            assert 1 <= (continued.round or 0) < 15
        assert nothing_is_left(directory)


def refused(tmp_path: Path, scenario: str, prefix: Sequence[str] = ()) -> str:
    """The error of a run that is refused before anything is made."""
    result = up(tmp_path, scenario, "--virtual", prefix=prefix)
    assert result.code == 1
    assert not list((tmp_path / "runs").glob("*"))
    return result.errors.strip()


@pytest.mark.usefixtures("kernel")
def test_too_little_memory_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, SHORT_OF_MEMORY)
    assert "memory" in error
    assert "1.07 TB" in error  # 2 · 500 · 2^30 bytes of the devices, and some GB


def test_without_a_kernel_the_remedy_is_one_command(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    error = refused(tmp_path, SHORT_OF_MEMORY.replace("500gib", "64mib"), ["env", f"EDGEBED_CACHE={empty}"])
    assert len(error.splitlines()) == 1
    assert error.startswith("error:")
    assert f"`{BUILD}`" in error
