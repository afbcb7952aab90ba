"""What a driver needs of the host is looked at before anything is made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from orchestrator.errors import HostError
from orchestrator.host import namespaces
from orchestrator.planning.plan import make_plan
from orchestrator.run import requirements
from orchestrator.run.launch import launch, prepared_plan
from orchestrator.run.requirements import missing, open_files, require
from orchestrator.scenario.reading import load, parse

REFUSED = HostError("ordinary users may not make namespaces", "allow it as root", ["sysctl a.b=1"])
SCENARIO = """\
# Is the host looked at first?
name: first
algorithm: {name: hierfavg, rounds: 1}
data: {dataset: digits, partition: iid}
model: mlp
topology: {edges: 1, devices_per_edge: 1}
"""


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without any command and without a Docker Engine."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/socket")
    return folder


def test_a_simulation_needs_nothing(bare: Path) -> None:
    assert missing("sim") == []
    require("sim")


def test_all_that_is_missing_is_told_at_once(bare: Path) -> None:
    said = [error.what for error in missing("namespaces")]
    assert said == [f"the command '{command}' is missing" for command in ("unshare", "nsenter", "ip", "tc")]
    with pytest.raises(HostError) as told:
        require("namespaces")
    assert str(told.value).count("\n") == 3


def test_a_missing_command_is_not_taken_for_missing_rights(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in ("unshare", "nsenter", "ip"):
        (bare / command).symlink_to("/bin/true")
    monkeypatch.setattr(namespaces, "refused", _unasked)
    with pytest.raises(HostError, match="'tc' is missing: install the package iproute2"):
        require("namespaces")


def test_namespaces_that_may_not_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "absent", list)
    monkeypatch.setattr(requirements, "refusal", lambda: REFUSED)
    assert missing("namespaces") == [REFUSED]
    assert REFUSED not in missing("docker")  # the Engine makes those


@pytest.mark.parametrize(("user", "client"), [(0, False), (1000, True)])
def test_docker_needs_an_engine_and_without_root_its_command(
    bare: Path, monkeypatch: pytest.MonkeyPatch, user: int, client: bool
) -> None:
    monkeypatch.setattr(requirements, "absent", list)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    engine, *rest = missing("docker")
    assert engine.what.startswith(f"no Docker Engine answers at {bare.parent}/socket")
    assert [("command 'docker'" in error.what) for error in rest] == [True] * client


def test_nothing_is_made_on_a_host_that_lacks_something(bare: Path, tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO)
    scenario = load(file, ())
    with pytest.raises(HostError, match="is missing"):
        launch(prepared_plan(scenario, file), scenario, file, (), tmp_path / "runs", _unasked)
    assert not (tmp_path / "runs").exists()


SCENARIO = """\
name: counted
algorithm: {name: hierfavg, rounds: 1}
topology: {edges: 2, devices_per_edge: 30}
"""


@pytest.mark.parametrize(
    ("driver", "files"),
    [
        ("namespaces", 64 + 3 * 31),  # an edge with its 30 devices and the cloud; there are only 63 nodes
        ("docker", 64 + 3 * 63),  # as many containers
        ("sim", 64 + 4 * 8),  # workers
    ],
)
def test_what_a_run_needs(driver: str, files: int) -> None:
    plan = make_plan(parse(SCENARIO + f"driver: {driver}\n", "counted.yaml"), None)
    assert open_files(plan, workers=8) == files


def _unasked(*_: object, **__: object) -> NoReturn:
    raise AssertionError("this is not to be asked")
