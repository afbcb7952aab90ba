"""Whether a run on several hosts can begin, or be continued, with a swarm that is played."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.drivers.swarm import entry
from orchestrator.errors import RunError, ScenarioError
from orchestrator.planning.copies import scenario_folder
from orchestrator.planning.hosts.inventory import HostFacts, Inventory
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory
from orchestrator.record.writer import Record
from orchestrator.run.launch import planned_again, prepared_plan
from orchestrator.scenario.reading import parse, placed

SCENARIO = """\
name: spread
driver: swarm
algorithm: {name: fedavg, rounds: 3}
data: {dataset: digits}
model: mlp
topology: {edges: 0, devices: 2}
links: {device-cloud: {latency: 10ms}}
hosts: {cloud: a, device: disk=large}
"""
A, B = (HostFacts(name, "192.0.2.1", "amd64", 8, 1 << 33, {"disk": "large"}, name == "a") for name in "ab")


def hosts(monkeypatch: pytest.MonkeyPatch, *there: HostFacts) -> None:
    monkeypatch.setattr(entry, "inventory", lambda: Inventory(there))


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[RunDirectory, Plan]:
    """A run on the hosts a and b."""
    file = tmp_path / "spread.yaml"
    hosts(monkeypatch, A, B)
    plan = prepared_plan(parse(SCENARIO, str(file)), file)
    assert {node.host for node in plan.nodes} == {"a", "b"}
    directory = RunDirectory.create(tmp_path, "spread")
    directory.scenario.write_text(SCENARIO)
    meta = {"scenario": str(file), "folder": str(tmp_path), "overrides": []}
    record = Record.create(directory.path, json.dumps(plan.to_json()), meta)
    record.event(
        5.0, None, "moved", 1, {"node": "device-0", "from": "b", "to": "a", "reason": "silent", "checkpoint": None}
    )
    record.close()
    return directory, plan


def test_a_run_with_moved_nodes_is_continued_as_planned(begun: tuple[RunDirectory, Plan]) -> None:
    directory, plan = begun
    assert planned_again(directory).recorded == plan.recorded


def test_a_run_is_not_continued_without_a_host_of_its_plan(
    begun: tuple[RunDirectory, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts(monkeypatch, A)
    with pytest.raises(RunError, match=r"continued.*b is not among"):
        planned_again(begun[0])


def test_programs_with_a_folder_that_is_too_large_are_refused_with_their_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts(monkeypatch, A)
    monkeypatch.setattr(scenario_folder, "LARGEST", 1000)
    file = tmp_path / "programs.yaml"
    file.write_text(
        "driver: swarm\ntopology: {edges: 0, devices: 1}\n"
        "programs: {cloud: {command: a, image: b}, device: {command: a, image: b}}\n"
    )
    (tmp_path / "model").write_bytes(bytes(1000))
    with pytest.raises(ScenarioError) as caught, placed(file):
        prepared_plan(parse(file.read_text(), str(file)), file)
    told = f"{file}:3: programs: the folder of the"
    assert str(caught.value).startswith(told)
