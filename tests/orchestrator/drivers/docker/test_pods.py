"""Nodes that run programs in containers; the Engine's client is a fake."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

import pytest
from docker.errors import APIError

from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.docker.pods import PodsDriver
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory
from orchestrator.scenario.reading import parse
from tests.fakes.docker import IMAGE, FakeDockerClient, answer

SCENARIO = """
driver: docker
programs:
  cloud: {command: serve, image: served}
  watcher: {on: cloud, command: watch, image: served}
  device: {command: ask, image: served}
topology: {cloud: true, edges: 0, devices: 1}
links: {device-cloud: {latency: 20ms}}
"""


@pytest.fixture
def plan() -> Plan:
    return make_plan(parse(SCENARIO, "f.yaml"), None)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeDockerClient:
    monkeypatch.setattr("orchestrator.drivers.docker.driver.is_process_of", lambda pid, container: pid == os.getpid())
    monkeypatch.setattr("orchestrator.drivers.docker.driver.sees", lambda *_: True)
    made = FakeDockerClient()
    made.known["served"] = IMAGE
    return made


@pytest.fixture
async def driver(client: FakeDockerClient, plan: Plan, tmp_path: Path) -> AsyncIterator[PodsDriver]:
    """With its node, whose holder is the first container."""
    directory = RunDirectory.create(tmp_path, "run")
    made = PodsDriver(Engine(client), directory, plan.programs, ["served"], {}, tmp_path)  # type: ignore[arg-type]
    await made.open()
    await made.start(plan.node("cloud"), directory.nodes / "none", directory.logs / "cloud.log")
    yield made
    await made.close()
    client.stream.close()


async def test_a_program_with_a_cancelled_start_leaves_no_container(
    driver: PodsDriver, client: FakeDockerClient, plan: Plan, tmp_path: Path
) -> None:
    client.starting.clear()
    client.may_start.clear()
    starting = asyncio.create_task(driver.run(plan.programs[0], tmp_path / "cloud.log"))
    await asyncio.to_thread(client.starting.wait, 5)
    starting.cancel()
    await asyncio.wait([starting])
    closing = asyncio.create_task(driver.close())
    await asyncio.sleep(0.05)
    assert not closing.done()  # it waits for the thread that starts the container
    client.may_start.set()
    await closing
    assert client.gone == {each.id for each in client.made}


async def test_a_program_that_has_just_ended_keeps_no_other_from_a_pause(
    driver: PodsDriver, client: FakeDockerClient, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended() -> NoReturn:
        raise APIError("ended", answer(409), "the container is not running")

    for program in plan.programs[:2]:
        await driver.run(program, tmp_path / f"{program.label}.log")
    monkeypatch.setattr(client.made[1], "pause", ended)
    monkeypatch.setattr(client.made[1], "unpause", ended)
    await driver.pause("cloud")
    await driver.resume("cloud")
    assert client.made[2].signals == ["pause", "unpause"]


async def test_a_signal_reaches_one_program_and_it_can_start_again(
    driver: PodsDriver, client: FakeDockerClient, plan: Plan, tmp_path: Path
) -> None:
    first, second = plan.programs[:2]
    for program in (first, second):
        await driver.run(program, tmp_path / f"{program.label}.log")
    for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL):
        await driver.signal(second, number)
    assert client.made[1].signals == []
    assert client.made[2].signals == ["pause", "unpause", "SIGKILL"]
    ended = await asyncio.wait_for(driver.ends.get(), 5)
    assert (ended.program, ended.code) == (second, -signal.SIGKILL)
    await driver.run(second, tmp_path / "again.log")
    names = [container.name for container in client.made[1:]]
    assert len(set(names)) == len(names) == 3
