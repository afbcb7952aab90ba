"""What hostile code in a node can do under `namespaces`: the table of docs/explanation/security.md, row by row.

As root both ways are tried: with a user for each node, and without root's help, in a user namespace.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from edgebed.testing.drivers import Stage, opened
from node.assignment import Assignment
from node.process.confinement import PROCESSES
from node.process.view import python
from orchestrator.drivers.base import Exit
from orchestrator.drivers.namespaces.driver import NamespacesDriver
from orchestrator.drivers.user import own_user
from orchestrator.errors import HostError
from orchestrator.fabric.base import NodeHandle
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.host.kernel.cgroups import writable_hierarchies
from orchestrator.record.directory import RunDirectory
from orchestrator.scenario.sections.hardware import HardwareClass

pytestmark = pytest.mark.e2e

WAYS = ["as root", "without root"] if os.geteuid() == 0 else ["without root"]


@dataclass
class Scene:
    """A stage whose devices are hostile (tests/e2e/hostile.py)."""

    stage: Stage
    hub: Hub
    way: str

    async def attack(self, name: str = "device-0", **params: Any) -> dict[str, Any]:
        """Have a node do its worst; what it printed, by the name of what it tried."""
        path = self.stage.assignment(name)
        path.write_text(replace(Assignment.load(path), params=params).to_json())
        pid = await self.stage.start(name)
        assert await self.stage.exit() == Exit(name, NodeHandle(pid), 0), self.stage.log(name).read_text()
        return self.said(name)

    def said(self, name: str) -> dict[str, Any]:
        lines = self.stage.log(name).read_text().splitlines()
        return dict(json.loads(line) for line in lines)


@pytest.fixture(params=WAYS)
async def scene(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    if request.param == "without root":
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() or 1)
    monkeypatch.setattr(NamespacesDriver, "server", "tests.e2e.hostile")
    monkeypatch.setenv("TEST_TOKEN", "of the caller")
    directory = RunDirectory.create(tmp_path / "runs", "stage")
    async with AsyncExitStack() as stack:
        try:
            hub = await Hub.open(directory.run, directory.path)
        except HostError as error:
            if "CI" in os.environ:
                raise
            pytest.skip(str(error))
        stack.push_async_callback(hub.close)
        stage = await opened(lambda data: NamespacesDriver(hub, directory, data), directory, stack)
        yield Scene(stage, hub, request.param)


def worthwhile(tmp_path: Path, scene: Scene) -> dict[str, str]:
    """Files of the host, as a node might find out where they are."""
    directory = scene.stage.directory
    files = {
        "record": directory.path / "run.db",
        "other's keys": scene.stage.assignment("device-1"),
        "other's checkpoint": directory.checkpoints_of("cloud") / "cloud.checkpoint",
        "other's log": scene.stage.log("cloud"),
        "secret": tmp_path / "secret",
        "python": Path(json.__file__),
    }
    for key in ("record", "other's checkpoint", "secret"):
        files[key].parent.mkdir(exist_ok=True)
        files[key].write_bytes(b"?")
    return {key: str(path) for key, path in files.items()}


async def test_a_hostile_node_gets_nowhere(tmp_path: Path, scene: Scene) -> None:
    other = await scene.stage.start("cloud")
    driver = scene.stage.driver
    assert isinstance(driver, NamespacesDriver)
    assert driver._server is not None
    hidden = f"\0edgebed-test-{os.getpid()}"
    with (
        socket.socket(socket.AF_INET) as internet,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as abstract,
        tempfile.NamedTemporaryFile(prefix=".edgebed-", dir=Path.home()) as private,
    ):
        for each, name in ((internet, ("127.0.0.1", 0)), (unix, str(tmp_path / "s")), (abstract, hidden)):
            each.bind(name)
            each.listen()
        targets = {
            "files": {**worthwhile(tmp_path, scene), "home directory": private.name},
            "processes": {
                "the orchestrator": os.getpid(),
                "the fork server": driver._server.pid,
                "another node": other,
            },
            "port": internet.getsockname()[1],
            "socket": str(tmp_path / "s"),
            "abstract": hidden,
        }
        said = await scene.attack(**targets)
        again = await scene.attack(**targets)
    facts = said.pop("facts")
    exempt = {"multiply"} if cannot_count(scene) else set()
    assert {name for name, error in said.items() if error is None} == exempt
    assert len(said) > 60

    status = facts["status"]
    assert {name: int(value, 16) for name, value in status.items() if name.startswith("Cap")} == dict.fromkeys(
        ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0
    )
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    if scene.way == "as root":
        user = own_user(scene.stage.directory.run, "device-0")
        assert (set(status["Uid"].split()), status["Groups"]) == ({str(user.uid)}, "")
    assert facts["processes"] == [1]
    assert facts["interfaces"] == ["lo"]
    assert facts["named"] == "cuda\n"
    # Of the host's folders that a node does not need, only those are there that lead to Python.
    leading = {Path(place).parts[1] for place in python(sys.path, sys.modules) if os.path.isabs(place)}
    assert {"home", "boot", "var", "srv", "old_root"} & set(facts["files"]) <= {"var"} | leading
    assert "of the caller" not in facts["environment"].values()
    # What it may do: keep its checkpoints, which a later life finds and replaces, and a folder that ends with it.
    assert (scene.stage.directory.checkpoints_of("device-0") / "mine").read_text() == "kept"
    assert again.keys() == said.keys() | {"facts"}


def cannot_count(scene: Scene) -> bool:
    """Whether this kernel does not limit the number of a node's processes: that of root's own it never does."""
    release = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])
    return scene.way == "without root" and (os.getuid() == 0 or release < (5, 14))


async def test_a_node_has_the_memory_of_its_hardware(scene: Scene) -> None:
    if not any("memory" in hierarchy.controllers for hierarchy in writable_hierarchies()):
        pytest.skip("control groups for memory cannot be made here: that needs root")
    path = scene.stage.assignment("device-0")
    path.write_text(replace(Assignment.load(path), params={"megabytes": 300}).to_json())
    small = replace(scene.stage.plan.node("device-0"), hardware=HardwareClass("small", memory=100 << 20))
    handle = await scene.stage.driver.start(small, path, scene.stage.log("device-0"))
    assert await scene.stage.exit() == Exit("device-0", handle, -9, out_of_memory=True)
    assert "took memory" not in scene.stage.log("device-0").read_text()


async def test_the_fabric_and_measurements_come_in_from_outside(scene: Scene) -> None:
    pid = await scene.stage.start("cloud")
    assert "lo" in await scene.hub.run(["ip", "link"], pid=pid)


async def test_what_cannot_be_taken_away_is_noted(scene: Scene) -> None:
    await scene.stage.start("cloud")
    notes = [note for note in scene.stage.driver.notes() if "system calls" in note or "processes" in note]
    assert len(notes) == (1 if scene.way == "without root" and platform.release() < "5.14" else 0), notes
    assert PROCESSES == 256
