from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.drivers.swarm.cluster import SwarmHost
from orchestrator.drivers.swarm.hosting import hosts
from orchestrator.drivers.swarm.hosting.hosts import print_hosts
from orchestrator.errors import HostError
from tests.orchestrator.consoles import printed

PC = SwarmHost("1", "pc", "10.0.0.1", True, "ready", "active", "amd64", 16.0, 33_500_000_000, "28.3.0", {})
BOARD = SwarmHost(
    *("2", "pi-1", "10.0.0.2", False, "ready", "drain", "arm64", 4.0, 3_900_000_000, "20.10.24"),
    {"edgebed.hardware": "raspberry-pi-4", "rack": "2", "spare": ""},
)
GONE = SwarmHost("3", "pi-2", "10.0.0.3", False, "down", "active", "arm64", 4.0, 3_900_000_000, "20.10.24", {})


def test_a_row_for_each_host() -> None:
    shown = printed(200, lambda console: print_hosts([PC, BOARD, GONE], None, console)).splitlines()
    assert [" ".join(line.split()) for line in shown[2:]] == [
        "pc ready, manager amd64 16 33.5 GB 28.3.0 10.0.0.1",
        "pi-1 ready, drain arm64 4 3.9 GB raspberry-pi-4 rack=2, spare 20.10.24 10.0.0.2",
        "pi-2 down arm64 4 3.9 GB 20.10.24 10.0.0.3",
    ]


def test_the_agents_that_were_left_running_have_a_column() -> None:
    shown = printed(200, lambda console: print_hosts([PC, GONE], {"pc": "running"}, console)).splitlines()
    assert [line.split()[-1] for line in shown if line and "─" not in line] == ["agent", "running", "none"]


def test_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "offered", lambda: ([PC, BOARD, GONE], {"pc": "running"}))
    result = CliRunner().invoke(cli, ["hosts", "--json"])
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert told["agents"] == {"pc": "running"}
    first, second, _ = told["hosts"]
    assert first == {
        "name": "pc",
        "address": "10.0.0.1",
        "architecture": "amd64",
        "cores": 16.0,
        "memory": 33_500_000_000,
        "labels": {},
        "manager": True,
        "state": "ready",
        "availability": "active",
        "engine": "28.3.0",
    }
    assert second["labels"] == BOARD.labels


def test_without_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/socket")
    result = CliRunner().invoke(cli, ["hosts"])
    assert isinstance(result.exception, HostError)  # exit code 1
