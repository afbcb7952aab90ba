"""What each driver needs of the host."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from orchestrator.drivers.base import entry_of
from orchestrator.drivers.docker import entry as docker
from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.namespaces import entry as namespaces
from orchestrator.drivers.swarm.cluster import Cluster
from orchestrator.errors import DriverError, HostError
from orchestrator.host.kernel import namespaces as host
from orchestrator.planning.hosts.inventory import HostFacts, Inventory
from orchestrator.planning.making import make_plan
from orchestrator.scenario.reading import parse
from orchestrator.scenario.sections.drivers import DRIVERS
from tests.texts import containing

REFUSED = HostError("ordinary users may not make namespaces", "allow it as root", ["sysctl a.b=1"])
SCENARIO = """\
name: counted
algorithm: {name: hierfavg, rounds: 1}
topology: {edges: 2, devices_per_edge: 30}
"""


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without any command and without a Docker Engine."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/socket")
    return folder


def test_every_driver_has_an_entry() -> None:
    for name in DRIVERS:
        entry = entry_of(DRIVERS[name])
        assert all(callable(each) for each in (entry.missing, entry.open_environment))


def test_a_simulation_needs_nothing(bare: Path) -> None:
    assert entry_of(DRIVERS["sim"]).missing() == []


def test_a_missing_command_is_not_taken_for_missing_rights(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in ("unshare", "nsenter", "ip"):
        (bare / command).symlink_to("/bin/true")
    monkeypatch.setattr(host, "refused", _unasked)
    (error,) = namespaces.missing()
    assert "'tc' is missing: install the package" in str(error)


def test_namespaces_that_may_not_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for entry in (namespaces, docker):
        monkeypatch.setattr(entry, "absent", list)
    monkeypatch.setattr(namespaces, "refusal", lambda: REFUSED)
    assert namespaces.missing() == [REFUSED]
    assert REFUSED not in docker.missing()  # the Engine makes those


@pytest.mark.parametrize(("user", "client"), [(0, False), (1000, True)])
def test_docker_needs_an_engine_and_without_root_its_command(
    bare: Path, monkeypatch: pytest.MonkeyPatch, user: int, client: bool
) -> None:
    monkeypatch.setattr(docker, "absent", list)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    engine, *rest = docker.missing()
    assert engine.what.startswith(f"no Docker Engine answers at {bare.parent}/socket")
    assert [("command 'docker'" in error.what) for error in rest] == [True] * client


def test_a_swarm_needs_an_image_of_agents_and_each_host(monkeypatch: pytest.MonkeyPatch) -> None:
    swarm = SimpleNamespace(members=lambda: [SimpleNamespace(name="a", usable=True)], close=lambda: None)
    engine = SimpleNamespace(image=lambda name: None, facts=lambda: {"Architecture": "x86_64"}, close=lambda: None)
    monkeypatch.setattr(Cluster, "connect", lambda: swarm)
    monkeypatch.setattr(Engine, "connect", lambda: engine)
    monkeypatch.setenv("EDGEBED_AGENT_IMAGE", "mine")
    gone = HostFacts("b", "10.0.0.2", "amd64", 64, 1 << 38, {}, False)
    text = SCENARIO + "driver: swarm\n"
    plan = make_plan(parse(text, "counted.yaml"), None, inventory=Inventory((gone,)))
    assert [error.what for error in entry_of(DRIVERS["swarm"]).missing(plan)] == [
        containing("this host has no image 'mine'"),
        containing("the host b", "not ready"),
    ]
    assert len(entry_of(DRIVERS["swarm"]).missing()) == 1


def test_a_registry_that_does_not_answer_is_reported_before_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> NoReturn:
        raise DriverError("no route to registry:5000")

    engine = SimpleNamespace(in_registry=refuse, close=lambda: None)
    monkeypatch.setattr(Cluster, "connect", lambda: SimpleNamespace(members=list, close=lambda: None))
    monkeypatch.setattr(Engine, "connect", lambda: engine)
    monkeypatch.setenv("EDGEBED_AGENT_IMAGE", "registry:5000/agent")
    (error,) = entry_of(DRIVERS["swarm"]).missing()
    assert error.what == "no route to registry:5000"
    assert "`docker login`" in error.remedy


def _unasked(*_: object, **__: object) -> NoReturn:
    raise AssertionError("this is not to be asked")
