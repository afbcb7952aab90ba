"""The runs of a sweep on a host, and what is told of their ends."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent import runs
from orchestrator.agent.runs import AssignedRuns, RunWorker
from orchestrator.drivers.swarm.agents.settings import MARK, RUNS
from orchestrator.errors import DriverError, HostError
from orchestrator.host.directory import RunDirectory


class Stage:
    """The runs of a host; the test says what their worker prints."""

    def __init__(self, folder: Path) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.failures: list[str] = []
        self.given: list[str] = []
        self.first: list[str | None] = [f"{MARK}{{}}\n"]
        self.hear: Callable[[str | None], None]
        self.runs = AssignedRuns(self._tell, self.failures.append, self._start, lambda: RunDirectory(folder))

    async def _start(
        self,
        image: str,
        command: Sequence[str],
        directory: RunDirectory,
        hear: Callable[[str | None], None],
        stack: AsyncExitStack,
    ) -> RunWorker:
        self.hear = hear
        for line in self.first:
            hear(line)
        return RunWorker(self.given.append, (os.geteuid(), os.getegid()))

    def _tell(self, name: str, **fields: Any) -> None:
        self.told.append((name, fields))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    own = tmp_path / RUNS / "small-1"
    own.mkdir(parents=True)
    (own / "plan.json").write_text("{}")
    return Stage(tmp_path)


async def test_an_end_that_nobody_waits_for_any_more_is_no_error_of_the_loop(stage: Stage) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def cancelled(*given: Any) -> RunWorker:
        given[3](None)  # the carrier has ended
        raise asyncio.CancelledError

    runs = AssignedRuns(stage._tell, stage.failures.append, cancelled, lambda: RunDirectory(Path()))
    with pytest.raises(asyncio.CancelledError):
        await runs.employ("edgebed-node", "module", "pc-1")
    del runs
    gc.collect()
    assert reported == []


async def test_a_run_is_given_and_its_end_is_told(stage: Stage) -> None:
    await stage.runs.employ("edgebed-node", "module", "pc-1")
    await stage.runs.carry("small-1", "abc", [])
    assert [json.loads(each) for each in stage.given] == [{"run": "small-1", "data": "abc", "plugins": []}]
    stage.hear("a warning of torch")
    stage.hear(f'{MARK}{{"run": "small-1", "error": null}}')
    assert stage.told == [
        ("log", {"log": RUNS, "data": b"a warning of torch\n"}),
        ("ended", {"run": "small-1", "error": None}),
    ]


async def test_the_files_of_a_run_are_removed(stage: Stage, tmp_path: Path) -> None:
    stage.runs.drop("small-1")
    assert list((tmp_path / RUNS).iterdir()) == []
    for run in ("", "..", ".", "small-1/logs", "/etc"):
        with pytest.raises(DriverError, match="no run"):
            stage.runs.drop(run)


async def test_an_end_before_it_was_ready_tells_why(stage: Stage) -> None:
    stage.first = ["Traceback", "ModuleNotFoundError: No module named 'yaml'", None]
    with pytest.raises(HostError, match=r"has ended: Traceback / ModuleNotFoundError: No module named 'yaml'"):
        await stage.runs.employ("edgebed-node", "module", "pc-1")
    assert stage.failures == []


async def test_one_that_is_never_ready(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "READY", 0.01)
    stage.first = ["loading"]
    with pytest.raises(HostError, match="was not ready within 0 s: loading"):
        await stage.runs.employ("edgebed-node", "module", "pc-1")


async def test_its_end_breaks_the_host_unless_it_is_closed(stage: Stage) -> None:
    await stage.runs.employ("edgebed-node", "module", "pc-1")
    stage.hear("MemoryError")
    stage.hear(None)
    assert stage.failures == ["the worker for runs has ended: MemoryError"]
    await stage.runs.close()
    stage.hear(None)
    assert len(stage.failures) == 1


async def test_a_run_without_anything_to_carry_it_out(stage: Stage) -> None:
    with pytest.raises(DriverError, match="the agent has restarted"):
        await stage.runs.carry("small-1", "abc", [])
