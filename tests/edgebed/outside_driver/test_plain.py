"""A driver from outside: public names only, the public cases that it claims, and a whole run of `hello`."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

import pytest

import edgebed
from edgebed.testing.drivers import Case, claimed, open_stage
from orchestrator.drivers.base import DriverEntry
from orchestrator.host.process.processes import run_processes
from orchestrator.record.directory import RunDirectory
from tests.edgebed.outside_driver import plain
from tests.test_readme import ROOT

DRIVER = Path(plain.__file__)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened:
        yield opened


def test_it_is_short_and_uses_public_names_only() -> None:
    text = DRIVER.read_text()
    assert len(text.splitlines()) <= 150
    imported = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).partition(".")[0])
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    assert not imported & {"netem", "node", "orchestrator"}
    assert "edgebed" in imported


@pytest.mark.e2e
@pytest.mark.parametrize("case", claimed("processes", "pause"), ids=str)
async def test_the_cases_that_need_no_namespaces(case: Case, tmp_path: Path, stack: AsyncExitStack) -> None:
    directory = RunDirectory.create(tmp_path, "stage")
    stage = await open_stage(cast(DriverEntry, plain), directory, stack)
    await case(stage)
    await stack.aclose()
    assert stage.traces() == []


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the driver as an installed package that advertises it."""
    folder = tmp_path / "packages"
    about = folder / "plain-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plain\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[edgebed]\nplain = plain\n")
    (folder / DRIVER.name).write_text(DRIVER.read_text())
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{ROOT}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "orchestrator", *words, "--driver", "plain"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.e2e
@pytest.mark.usefixtures("installed")
def test_hello_runs_from_start_to_verdict() -> None:
    done = call("up", "hello")
    assert done.returncode == 0, done.stderr + done.stdout
    (run,) = edgebed.runs("runs")
    assert run.verdict == "pass"
    assert run.summary["link_kinds"]["device-edge"] == ["real"]
    assert run_processes(run.path.name) == []


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_what_it_cannot_do_is_refused_or_noted() -> None:
    fault = "faults=[{action: disconnect, node: device-0-0, at: 1s, for: 1s}]"
    refused = call("validate", "hello", "--set", fault)
    assert refused.returncode != 0
    assert "faults.0.action: the driver plain does not shape links" in refused.stderr
    noted = call("validate", "hello")
    assert noted.returncode == 0, noted.stderr
    assert "the driver plain does not shape links" in noted.stdout
