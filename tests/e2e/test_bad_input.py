"""Everything that can be wrong gets one message with place and remedy, the right exit code, and leaves nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from orchestrator.host.directory import known_runs
from orchestrator.host.process.processes import run_processes
from tests.e2e.harness import OWN_MOUNTS, ROOT, SMALL, command, json_of, up, write

pytestmark = pytest.mark.e2e

# A user without rights in a namespace in which no further one may be made.
WITHOUT_NAMESPACES = (
    *("unshare", "--user", "--map-root-user", "--", "sh", "-c"),
    'echo 1 > /proc/sys/user/max_user_namespaces; exec unshare --user --map-user=1000 --map-group=1000 -- "$@"',
    "sh",
)


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (("rounds: 3", "ronds: 3"), 2, "did you mean 'rounds'?"),
        (("latency: 2ms", "latency: 2"), 2, "links.device-edge"),
        (("rate: 50mbit", "rate: 50Mbps"), 2, "mbit"),
        (("topology: {edges: 2, devices_per_edge: 2", "topology: {edges: 0, devices_per_edge: 2"), 2, "topology"),
        (("dataset: digits", "dataset: 'npz:/nowhere/data.npz'"), 2, "/nowhere/data.npz"),
        (("dataset: digits", "dataset: mnist, path: /nowhere"), 2, "/nowhere"),
    ],
)
def test_a_wrong_scenario_says_where_and_what_to_do(
    tmp_path: Path, change: tuple[str, str], code: int, said: str
) -> None:
    assert change[0] in SMALL
    result = up(tmp_path, SMALL.replace(*change))
    assert (result.code, result.summary) == (code, {})
    assert result.errors.startswith("error: ")
    assert said in result.errors
    assert "Traceback" not in result.errors
    assert known_runs(tmp_path / "runs") == []


def test_validate_and_plan_touch_nothing(tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    before = set(tmp_path.rglob("*"))
    for verb in ("validate", "plan"):
        json_of(verb, tmp_path / "scenario.yaml")
    assert set(tmp_path.rglob("*")) == before


def test_no_user_namespaces(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    result = up(tmp_path, SMALL, prefix=WITHOUT_NAMESPACES)
    assert result.code == 1
    assert result.errors.count("error: ") == 1
    assert "sysctl user.max_user_namespaces=" in result.errors
    assert "Traceback" not in result.errors
    assert not (tmp_path / "runs").exists()


def test_a_full_disk(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    path = write(tmp_path, SMALL.replace("rounds: 3", "rounds: 100"))
    # A file system of half a megabyte, mounted where nobody else sees it.
    script = f'mount -t tmpfs -o size=512k none {runs} && exec "$@"'
    done = subprocess.run(
        [*OWN_MOUNTS, "sh", "-c", script, "sh", *command("up", path, "--runs", runs, "--json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "make room" in done.stderr or "space" in done.stderr
    assert [each for each in run_processes() if each.directory.is_relative_to(tmp_path)] == []


def test_a_socket_that_cannot_be_bound(tmp_path: Path) -> None:
    """The control socket is the only address a run takes on the host, and it lies in the run's own directory."""
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    result = up(deep, SMALL.replace("rounds: 3", "rounds: 1"), "--set", "probe.before=false")
    assert result.code == 0, result.errors  # longer than a socket's address may be, and it works all the same


def test_logs_of_a_node_that_does_not_exist(tmp_path: Path) -> None:
    done = subprocess.run(
        command("logs", "edge-9", "--runs", tmp_path), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: there is no run in")


def test_bad_usage_is_exit_code_2() -> None:
    done = subprocess.run(command("up"), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert os.linesep in done.stderr


def test_too_few_open_files_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    result = up(tmp_path, SMALL, prefix=("bash", "-c", 'ulimit -n 40; exec "$@"', "bash"))
    assert result.code == 1
    assert "`ulimit -n " in result.errors
    assert "this shell allows 40" in result.errors
    assert not (tmp_path / "runs").exists()


def test_as_many_open_files_as_are_asked_for_are_enough(tmp_path: Path) -> None:
    few = up(tmp_path, SMALL, prefix=("bash", "-c", 'ulimit -n 40; exec "$@"', "bash"))
    enough = few.errors.partition("`ulimit -n ")[2].partition("`")[0]
    result = up(tmp_path, SMALL, prefix=("bash", "-c", f'ulimit -n {enough}; exec "$@"', "bash"))
    assert result.summary["ended"] == "rounds", result.errors
