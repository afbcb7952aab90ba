"""Root does not end a process because a stranger says so. A stranger is a process of another user."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from orchestrator.errors import RunError
from orchestrator.host.process.processes import TOKEN, labels, run_processes
from orchestrator.record.directory import RunDirectory, known_runs
from orchestrator.record.writer import Record
from orchestrator.results.listing import run_paths
from orchestrator.run.down import clear, down, traces

STRANGER = 65534
HOLD = """
import fcntl, os, sys
lock = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(lock, fcntl.LOCK_EX)
print("here", flush=True)
sys.stdin.read()
"""
WAIT = "import sys; print('here', flush=True); sys.stdin.read()"
BECOME = "import fcntl, os, sys; os.setgid({user}); os.setuid({user})\n"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")


@pytest.fixture
def open_path(tmp_path: Path) -> Path:
    """A folder that strangers can reach."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    return tmp_path


@contextlib.contextmanager
def process(
    script: str, *arguments: str, user: int | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has said that it is there."""
    started = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", ("" if user is None else BECOME.format(user=user)) + script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    assert started.stdout is not None
    assert started.stdout.readline() == b"here\n"
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def made(runs: Path, name: str, owner: int | None = None) -> RunDirectory:
    directory = RunDirectory.create(runs, name)
    (directory.path / "run.db").touch()
    if owner is not None:
        for path in (directory.path, *directory.path.rglob("*")):
            os.chown(path, owner, owner)
    return directory


def test_a_running_orchestrator_is_asked_to_end(tmp_path: Path) -> None:
    directory = made(tmp_path, "mine")
    directory.lock.touch()
    with process(HOLD, str(directory.lock)) as holder:
        directory.lock.write_text(f"{holder.pid}\n")
        assert traces(tmp_path)[directory.run] == directory
        removed = down(directory.run, directory)
        assert (removed.stopped, removed.left, holder.wait()) == (True, [], -signal.SIGTERM)


def test_a_process_that_does_not_hold_the_lock_is_left_alone(tmp_path: Path) -> None:
    """The number in the lock file was that of an orchestrator long gone, and somebody looks at the lock."""
    directory = made(tmp_path, "mine")
    with process(WAIT) as bystander:
        directory.lock.write_text(f"{bystander.pid}\n")
        with process(HOLD, str(directory.lock)):
            removed = down(directory.run, directory)
        assert removed.left == [f"process {bystander.pid}, which holds {directory.lock}"]
        assert bystander.poll() is None


@needs_root
def test_a_strangers_directory_is_not_believed(open_path: Path) -> None:
    directory = made(open_path, "theirs", STRANGER)
    with process(WAIT) as victim:
        directory.lock.write_text(f"{victim.pid}\n")
        with process(HOLD, str(directory.lock), user=STRANGER):
            assert directory.run not in traces(open_path)
            with pytest.raises(RunError, match=f"{directory.path} belongs to another user"):
                down(directory.run, directory)
        assert victim.poll() is None


@needs_root
@pytest.mark.parametrize("whose", ["root's", "the stranger's", "a folder of root's that anybody may write to"])
def test_a_label_proves_nothing(open_path: Path, whose: str) -> None:
    directory = made(open_path, "run", STRANGER if whose == "the stranger's" else None)
    told = labels(directory.run, directory.path, "node")
    if whose == "a folder of root's that anybody may write to":
        directory.path.chmod(0o1777)
    elif whose == "root's":
        told[TOKEN] = "guessed"
    with process(WAIT, environment=told) as victim:
        assert [each.pid for each in run_processes(directory.run)] == []
        down(directory.run, None)
        assert victim.poll() is None


@needs_root
def test_a_process_of_the_run_is_ended_for_any_user(open_path: Path) -> None:
    directory = made(open_path, "mine")
    with process(WAIT, user=STRANGER, environment=labels(directory.run, directory.path, "node")) as node:
        assert down(directory.run, directory).left == []
        assert node.wait() == -signal.SIGKILL


@needs_root
def test_a_folder_that_only_another_user_may_read_hides_no_run(open_path: Path) -> None:
    private, directory = made(open_path, "private"), made(open_path, "mine", STRANGER)
    private.lock.touch()
    private.path.chmod(0o700)
    try:
        for user, seen in ((0, {private.run, directory.run}), (STRANGER, {directory.run})):
            os.seteuid(user)
            assert {each.run for each in known_runs(open_path)} == seen
            assert {name for name, _ in run_paths(open_path)} == seen
            assert (private.run in traces(open_path)) == (user == 0)
    finally:
        os.seteuid(0)


@needs_root
def test_no_stranger_can_read_the_token(open_path: Path) -> None:
    directory = made(open_path, "mine")
    directory.token()
    done = subprocess.run(["cat", directory.path / "token"], user=STRANGER, capture_output=True, check=False)
    assert b"Permission denied" in done.stderr


@pytest.mark.parametrize(("driver", "lists"), [("docker", True), ("namespaces", False)])
def test_containers_that_no_engine_lists_may_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, lists: bool
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/socket")
    directory = RunDirectory.create(tmp_path, "mine")
    Record.create(directory.path, "{}", {"driver": driver}).close()  # without an outcome: its orchestrator was killed
    left = clear(directory.run, directory).left
    assert [part.startswith("containers") for part in left] == [True] * lists


POD = '{"metadata": {"annotations": {"edgebed-host": "n1"}}, "status": {"phase": "Running"}}'
KUBECTL = f"""\
#!/bin/sh
[ $1 = delete ] || echo '{{"items": [{POD}]}}'
"""


def test_agents_that_a_killed_orchestrator_has_left_in_a_cluster_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory.create(tmp_path, "mine")
    Record.create(directory.path, "{}", {"driver": "kubernetes"}).close()
    kubectl = tmp_path / "kubectl"
    monkeypatch.setenv("PATH", str(tmp_path))
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    removed = clear(directory.run, directory)
    assert (removed.hosts, removed.left) == (["n1"], [])
    kubectl.unlink()
    (left,) = clear(directory.run, directory).left
    assert left.startswith("its agents (the command 'kubectl' is missing")
