"""Commands about recorded runs load nothing that makes runs, so they start fast. A new process runs each command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.orchestrator.example_run import Example

RUNNER = """
import json, sys
from orchestrator.cli.main import carry_out
code = carry_out()
with open(sys.argv[-1], "w") as file:
    json.dump([code, sorted(sys.modules)], file)
"""
MAKES_RUNS = re.compile(
    r"orchestrator\.(agent|drivers|fabric|fidelity|planning|population|run)\b|node\.(algorithms|role)\b|(docker|torch)$"
)
HEAVY = ("docker", "numpy", "pandas", "pydantic", "torch", "yaml")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three runs; the first has a summary and a report."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("hello-20261122-154058-1ef8", "hello-20261122-154158-2ef8", "hello-20261122-154258-3ef8"):
        Example().build(folder / name)
    return folder


def modules_of(arguments: list[str], tmp_path: Path) -> list[str]:
    """The modules that a command has loaded when it ends, in a process of its own."""
    loaded = tmp_path / "modules.json"
    program = RUNNER.replace("sys.argv[-1]", repr(str(loaded)))
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    code, modules = json.loads(loaded.read_text())
    assert code == 0 or arguments[0] in ("compare", "wait"), ended.stderr
    return list(modules)


@pytest.mark.parametrize(
    "command",
    [
        ["report", "hello-20261122-154058-1ef8"],
        ["ls"],
        ["compare", "hello-20261122-154058-1ef8", "hello-20261122-154158-2ef8"],
        ["open", "hello-20261122-154058-1ef8"],
        ["wait", "hello-20261122-154058-1ef8"],
        ["rm", "--yes", "hello-20261122-154258-3ef8"],
        ["--version"],
        ["--help"],
    ],
    ids=lambda command: command[0],
)
def test_a_command_about_recorded_runs_loads_nothing_that_makes_runs(
    command: list[str], runs: Path, tmp_path: Path
) -> None:
    if not command[0].startswith("--"):
        command = [*command, "--runs", str(runs)]
    loaded = modules_of(command, tmp_path)
    assert "orchestrator.cli.main" in loaded
    assert [module for module in loaded if MAKES_RUNS.match(module)] == []


@pytest.mark.parametrize("command", [["ls"], ["--version"], ["--help"]], ids=lambda command: command[0])
def test_the_fastest_commands_load_no_heavy_package(command: list[str], tmp_path: Path) -> None:
    if command == ["ls"]:
        command = ["ls", "--runs", str(tmp_path)]
    loaded = modules_of(command, tmp_path)
    assert [module for module in loaded if module in HEAVY] == []
