"""`exec` and `shell`: the command line that enters a node, and the errors where none can."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli.main import cli
from orchestrator.drivers.docker import leftovers
from orchestrator.errors import RunError
from orchestrator.host.docker_socket import NodeContainer
from orchestrator.host.process import processes
from orchestrator.host.process.processes import RunProcess
from orchestrator.record.directory import RunDirectory
from orchestrator.verbs.live.inside import ALL
from tests.orchestrator.example_run import Example

RUN = "good-20260101-120000-0000"
NODE = "device-0-0"


def cli_result(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, list(map(str, words)))


def made(tmp_path: Path, driver: str, **settings: int) -> RunDirectory:
    """A run that was cut short."""
    example = Example(rounds=2, rounds_made=1, ending=None, driver=driver, **settings)  # type: ignore[arg-type]
    return RunDirectory(example.build(tmp_path / "runs" / RUN))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[RunProcess]:
    """The processes of runs on a host: two nodes and a hub."""
    found = [
        RunProcess(pid, RUN, tmp_path, part, command)
        for pid, part, command in (
            (70, "hub", "python3"),
            (81, "node", "forkserver"),
            (93, "node", NODE),
            (94, "node", "edge-0"),
        )
    ]
    monkeypatch.setattr(processes, "run_processes", lambda run: [each for each in found if each.run == run])
    return found


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines that have replaced this process, with the home that they got."""
    found: list[list[str]] = []

    def become(_: str, argv: list[str], environment: dict[str, str]) -> NoReturn:
        found.append([f"HOME={environment['HOME']}", *argv])
        raise SystemExit(0)

    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr(os, "execvpe", become)
    return found


@pytest.mark.parametrize("root", [True, False])
@pytest.mark.usefixtures("host")
def test_a_command_enters_the_namespaces_that_the_run_has_made(
    tmp_path: Path, became: list[list[str]], monkeypatch: pytest.MonkeyPatch, root: bool
) -> None:
    with made(tmp_path, "namespaces").held():
        monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
        monkeypatch.setattr(RunDirectory, "is_ours", True)
        cli_result("exec", NODE, "--runs", tmp_path / "runs", "--", "ping", "-c", "2", "10.77.0.1")
    user = [] if root else ["--user=/proc/70/ns/user", "--preserve-credentials"]
    assert became == [["HOME=/", "nsenter", "--target", "93", *user, *ALL, "--", "ping", "-c", "2", "10.77.0.1"]]


@pytest.mark.usefixtures("host")
def test_a_shell_is_one_that_the_node_has(tmp_path: Path, became: list[list[str]]) -> None:
    with made(tmp_path, "namespaces").held():
        cli_result("shell", NODE, "--run", RUN, "--runs", tmp_path / "runs")
    assert became[0][-3:-1] == ["sh", "-c"]
    assert "bash" in became[0][-1]


@pytest.mark.usefixtures("host")
def test_what_cannot_be_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = made(tmp_path, "namespaces")

    def error_of(node: str) -> str:
        result = cli_result("exec", node, "--runs", tmp_path / "runs", "--", "true")
        assert isinstance(result.exception, RunError)
        return str(result.exception)

    assert f"run {RUN} is over" in error_of(NODE)
    with directory.held():
        assert "there is no node 'device-0-00'" in error_of("device-0-00")
        assert "device-0-1 has no process (it is " in error_of("device-0-1")
        monkeypatch.setattr(RunDirectory, "is_ours", False)
        assert "belongs to another user" in error_of(NODE)
        monkeypatch.setattr("orchestrator.results.history.History.driver", "sim")
        assert f"{NODE} is simulated: it has no" in error_of(NODE)


@pytest.fixture
def containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with the container of one node, and a `docker` that repeats its arguments and fails."""
    monkeypatch.setattr(leftovers, "listed", lambda run: [NodeContainer("4f2a", run, NODE, tmp_path, 93)])
    client = tmp_path / "bin" / "docker"
    client.parent.mkdir()
    client.write_text('#!/bin/sh\necho "$@"\necho lost >&2\nexit 9\n')
    client.chmod(0o755)
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/engine")
    monkeypatch.setenv("PATH", f"{client.parent}:{os.environ['PATH']}")


@pytest.mark.usefixtures("containers")
def test_a_command_in_a_container_as_an_object(tmp_path: Path) -> None:
    with made(tmp_path, "docker").held():
        result = cli_result("exec", NODE, "--json", "--runs", tmp_path / "runs", "--", "ip", "addr")
    assert result.exit_code == 9
    assert json.loads(result.stdout) == {
        "run": RUN,
        "node": NODE,
        "command": ["ip", "addr"],
        "code": 9,
        "stdout": "--host unix:///run/engine exec --interactive 4f2a ip addr\n",
        "stderr": "lost\n",
    }


@pytest.mark.usefixtures("containers")
def test_a_node_on_another_host_is_entered_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with made(tmp_path, "swarm", hosts=2).held():
        away = cli_result("exec", "device-1-0", "--runs", tmp_path / "runs", "--", "ip", "addr")
        assert "pc-2: run there `docker exec -it" in str(away.exception)
        monkeypatch.setenv("PATH", str(tmp_path))
        without = cli_result("exec", NODE, "--runs", tmp_path / "runs", "--", "ip", "addr")
        assert "the command 'docker' is missing" in str(without.exception)
