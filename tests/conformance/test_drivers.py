"""Every driver whose nodes are processes against the same cases."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from edgebed.testing.drivers import BEAT, CASES, SCENARIO, Case, Stage, claimed, opened
from orchestrator.drivers.docker.driver import DockerDriver
from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.namespaces.driver import NamespacesDriver
from orchestrator.errors import HostError
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.planning.making import make_plan
from orchestrator.record.directory import RunDirectory
from orchestrator.scenario.reading import parse
from tests.fakes.driver import FakeControl, FakeDriver
from tests.virtual import virtual


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened:
        yield opened


@pytest.fixture
async def hub(tmp_path: Path, stack: AsyncExitStack) -> Hub:
    try:
        hub = await Hub.open(f"stage-{os.getpid()}", tmp_path)
    except HostError as error:
        if "CI" in os.environ:
            raise
        pytest.skip(str(error))
    stack.push_async_callback(hub.close)
    return hub


@pytest.mark.parametrize("case", claimed("pause"), ids=str)
@virtual
async def test_fake(case: Case, tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "stage")
    control = FakeControl()
    driver = FakeDriver(control, BEAT)
    runs = lambda pid: pid in [handle.pid for handle in driver.running.values()]  # noqa: E731
    plan = make_plan(parse(SCENARIO, "stage.yaml"), None)
    await case(Stage(driver, plan, directory, control, lambda: list(driver.running), runs))
    await driver.close()


@pytest.mark.e2e
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_namespaces(case: Case, tmp_path: Path, hub: Hub, stack: AsyncExitStack) -> None:
    directory = RunDirectory.create(tmp_path, "stage")
    stage = await opened(lambda data: NamespacesDriver(hub, directory, data), directory, stack)
    await case(stage)
    await stack.aclose()
    assert stage.traces() == []


@pytest.mark.e2e
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_docker(case: Case, tmp_path: Path, stack: AsyncExitStack) -> None:
    directory = RunDirectory.create(tmp_path, "stage")
    stage = await opened(lambda data: DockerDriver(Engine.connect(), directory, data), directory, stack)
    await case(stage)
    await stack.aclose()
    assert stage.traces() == []
