"""Whole nodes, in one process, between a real control plane and the real transport over loopback."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from node.algorithms.registry import ALGORITHMS
from node.assignment import Assignment, DataAssignment, Hardware, Stop, Timeouts
from node.errors import AssignmentError
from node.learning.data.datasets import prepare
from node.messaging.control import ControlServer
from node.process.main import EXIT_DONE, EXIT_FAILED, EXIT_ORPHANED, live, load_role
from tests.node.assignments import Nodes, make_keys
from tests.texts import containing

PATIENCE = 30.0
DEVICES = ["device-0", "device-1"]


class Run:
    """FedAvg on the digits with a cloud and two devices; the test is the orchestrator."""

    def __init__(self, folder: Path, data: Path, server: ControlServer, nodes: Nodes, control_key: str) -> None:
        self.server = server
        self.heard: dict[str, list[dict[str, Any]]] = {name: [] for name in nodes.keys}
        self.tasks: dict[str, asyncio.Task[int]] = {}
        self._folder, self._data, self._nodes, self._control_key = folder, data, nodes, control_key
        self._news = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())

    def start(self, name: str, incarnation: str = "first", **values: Any) -> None:
        self.tasks[name] = asyncio.create_task(live(self.assignment(name, **values), incarnation))

    def assignment(self, name: str, **values: Any) -> Assignment:
        relations: Any = dict.fromkeys(DEVICES, "child") if name == "cloud" else {"cloud": "parent"}
        given = {
            "control_endpoint": f"ipc://{self._folder}/control",
            "control_key": self._control_key,
            "stop": Stop(rounds=2),
            "timeouts": Timeouts(beat=0.1),
            "hardware": Hardware(),
            "checkpoint_directory": str(self._folder),
            "params": {"batch_size": 8},
            "data": DataAssignment(
                dataset="digits",
                directory=str(self._data),
                shards=str(self._folder / "shards.npz"),
                train_key=None if name == "cloud" else name,
                global_test=name == "cloud",
            ),
        }
        return self._nodes.assignment(name, relations, **given | values)

    async def until(self, node: str, **wanted: Any) -> dict[str, Any]:
        """The first message from the node in which all this stands."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for message in self.heard[node]:
                    if wanted.items() <= message.items():
                        return message
                self._news.clear()
                await self._news.wait()

    async def say(self, type: str, *nodes: str, **fields: Any) -> None:
        for node in nodes:
            await self.server.send(node, {"type": type, **fields})

    async def code(self, node: str) -> int:
        async with asyncio.timeout(PATIENCE):
            return await self.tasks[node]

    async def close(self) -> None:
        for task in (*self.tasks.values(), self._listening):
            task.cancel()
        await asyncio.gather(*self.tasks.values(), self._listening, return_exceptions=True)

    async def _listen(self) -> None:
        async for node, message in self.server.messages():
            self.heard[node].append(message)
            self._news.set()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare("digits", tmp_path_factory.mktemp("data")).directory


@asynccontextmanager
async def running(folder: Path, data: Path) -> AsyncIterator[Run]:
    shards: dict[str, Any] = {name: np.arange(place, 60, 2) for place, name in enumerate(DEVICES)}
    np.savez(folder / "shards.npz", **shards)
    nodes, keys = Nodes("cloud", *DEVICES), make_keys()
    server = ControlServer(f"ipc://{folder}/control", keys, {name: own.public for name, own in nodes.keys.items()})
    run = Run(folder, data, server, nodes, keys.public)
    try:
        yield run
    finally:
        await run.close()
        await server.close()


async def test_a_run_from_register_to_done(tmp_path: Path, data: Path) -> None:
    async with running(tmp_path, data) as run:
        for name in ("cloud", *DEVICES):
            run.start(name)
        for name in ("cloud", *DEVICES):
            register = await run.until(name, type="register")
            assert (register["node"], register["incarnation"]) == (name, "first")
        assert not [message for message in run.heard["cloud"] if message["type"] == "event"]
        await run.say("start", "cloud", *DEVICES)
        for name in ("cloud", *DEVICES):
            assert await run.code(name) == EXIT_DONE
        assert (await run.until("cloud", type="done"))["reason"] == "rounds"
        for round in (1, 2):
            for phase in ("start", "end"):
                await run.until("cloud", type="event", name="round", round=round, phase=phase)
            metric = await run.until("cloud", type="metric", round=round)
            assert 0 <= metric["values"]["accuracy"] <= 1
        beats = [message for message in run.heard["cloud"] if message["type"] == "beat"]
        assert beats[-1]["cpu"] > 0
        assert beats[-1]["rss"] > 10 << 20
        assert beats[-1]["memory_pss"] > 1 << 20
        traffic = [message for message in run.heard["cloud"] if message["type"] == "traffic"][-1]["peers"]
        sent = {row["peer"]: row["messages"] for row in traffic if (row["kind"], row["direction"]) == ("model", "sent")}
        assert sent == {"device-0": 2, "device-1": 2}


async def test_a_coordinator_resumes_from_its_checkpoint(tmp_path: Path, data: Path) -> None:
    async with running(tmp_path, data) as run:
        for name in ("cloud", *DEVICES):
            run.start(name, stop=Stop(rounds=1))
            await run.until(name, type="register")
        await run.say("start", "cloud", *DEVICES)
        assert await run.code("cloud") == EXIT_DONE
        run.heard["cloud"].clear()
        for name in ("cloud", *DEVICES):
            await run.code(name)
            run.heard[name].clear()
            run.start(name, "second")
            await run.until(name, type="register")
        await run.say("start", "cloud", *DEVICES)
        assert await run.code("cloud") == EXIT_DONE
        assert await run.until("cloud", type="event", name="resumed", round=1)
        rounds = {message["round"] for message in run.heard["cloud"] if message.get("name") == "round"}
        assert rounds == {2}


async def test_stopped_before_it_started(tmp_path: Path, data: Path) -> None:
    async with running(tmp_path, data) as run:
        run.start("device-0")
        await run.until("device-0", type="register")
        await run.say("stop", "device-0")
        assert await run.code("device-0") == EXIT_DONE
        assert (await run.until("device-0", type="done"))["reason"] == "stopped"


async def test_terminated_from_outside(tmp_path: Path, data: Path) -> None:
    async with running(tmp_path, data) as run:
        run.start("device-0")
        await run.until("device-0", type="register")
        await run.say("start", "device-0")
        os.kill(os.getpid(), signal.SIGTERM)
        assert await run.code("device-0") == EXIT_FAILED
        failed = await run.until("device-0", type="failed")
        assert failed["error"] == containing("Terminated: ended by SIGTERM, which did")
        assert not [message for message in run.heard["device-0"] if message["type"] == "done"]


async def test_stop_leave_and_slow_while_it_runs(tmp_path: Path, data: Path) -> None:
    async with running(tmp_path, data) as run:
        for name in ("cloud", *DEVICES):
            run.start(name, stop=Stop(rounds=10_000))
            await run.until(name, type="register")
        await run.say("start", "cloud", *DEVICES)
        await run.until("cloud", type="event", name="round", round=2)
        await run.say("slow", "device-1", factor=0.5)
        await run.say("nonsense", "device-1")
        await run.say("leave", "device-0")
        assert await run.code("device-0") == EXIT_DONE
        await run.until("cloud", type="event", name="left", peer="device-0")
        assert not [message for message in run.heard["device-0"] if message["type"] == "done"]
        await run.say("stop", "cloud", "device-1")
        assert await run.code("cloud") == await run.code("device-1") == EXIT_DONE


async def test_what_breaks_is_reported(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.messaging.transport._ADDRESS_PATIENCE", 0.0)
    async with running(tmp_path, data) as run:
        run.start("cloud", algorithm="fedwhat")
        assert await run.code("cloud") == EXIT_FAILED
        failed = await run.until("cloud", type="failed")
        assert failed["error"].startswith("AssignmentError: cloud: no algorithm 'fedwhat'; known: fedavg")
        run.start("device-0", host="192.0.2.1")  # RFC 5737: nobody's address
        await run.until("device-0", type="register")
        await run.say("start", "device-0")
        assert await run.code("device-0") == EXIT_FAILED
        failed = await run.until("device-0", type="failed")
        assert failed["error"].startswith("TransportError: device-0: cannot listen on tcp://192.0.2.1")


async def test_a_cloud_may_have_more_peers_than_libzmq_has_sockets(tmp_path: Path, data: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("needs 4096 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    async with running(tmp_path, data) as run:
        cloud = run.assignment("cloud")
        peers = tuple(replace(cloud.peers[0], name=f"device-{place}") for place in range(1100))
        run.tasks["cloud"] = asyncio.create_task(live(replace(cloud, peers=peers), "first"))
        await run.until("cloud", type="register")
        await run.say("start", "cloud")
        await run.until("cloud", type="traffic")  # it has connected to all of them
        await run.say("stop", "cloud")
        assert await run.code("cloud") == EXIT_DONE
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_role_is_found_by_algorithm_and_tier() -> None:
    nodes = Nodes("cloud", "device-0", "edge-0")
    assert load_role(nodes.assignment("cloud", {}), ALGORITHMS).__name__ == "Cloud"
    with pytest.raises(AssignmentError, match="edge-0: no algorithm 'x'; known: fedavg"):
        load_role(nodes.assignment("edge-0", {}, algorithm="x"), ALGORITHMS)


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_the_command(tmp_path: Path) -> None:
    usage = python("-m", "node")
    assert (usage.returncode, usage.stderr) == (2, "usage: python -m node ASSIGNMENT.json\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    for name, reason in [("absent.json", "cannot be read"), ("picture.png", "assignment: not JSON")]:
        refused = python("-m", "node", str(tmp_path / name))
        assert refused.returncode == EXIT_FAILED
        assert refused.stderr.startswith(f"{tmp_path / name}: {reason}")


@pytest.mark.slow
def test_a_process_says_why_it_ends(tmp_path: Path, data: Path) -> None:
    assignment = Nodes("cloud").assignment(
        "cloud",
        {},
        control_endpoint=f"ipc://{tmp_path}/nobody",
        control_key=make_keys().public,
        data=DataAssignment(dataset="digits", directory=str(data), shards=""),
        timeouts=Timeouts(beat=0.1, lease=0.2),
    )
    (tmp_path / "cloud.json").write_text(assignment.to_json())
    ended = python("-m", "node", str(tmp_path / "cloud.json"))
    assert ended.returncode == EXIT_ORPHANED
    assert "cloud ERROR cloud: nothing received" in ended.stderr


def test_importing_the_runtime_does_not_import_torch() -> None:
    code = "import json, sys, node.process.main, node.process.forkserver; print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(python("-c", code).stdout)
    assert "node.messaging.transport" in modules
    assert "torch" not in modules
