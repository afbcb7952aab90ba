"""Scenarios that a program checks and plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.errors import ScenarioError
from orchestrator.scenario.typed import Fault, Link, Scenario
from orchestrator.verbs.sources import plan, validate

SCENARIO = Scenario(
    algorithm={"name": "fedavg", "rounds": 2},
    data={"dataset": "digits", "samples_per_client": 40},
    model="mlp",
    topology={"devices": 2},
    links={"device-cloud": Link(latency="5ms", up={"rate": "5mbit"})},
    faults=[Fault(action="pause", node="device-0", round=2), {"action": "crash", "node": "device-1", "round": 1}],
    driver="sim",
)


def test_a_plan_is_that_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "scenario.yaml"
    file.write_text(yaml.safe_dump(SCENARIO))
    printed = json.loads(CliRunner().invoke(cli, ["plan", str(file), "--json"]).stdout)
    assert json.loads(json.dumps(plan(SCENARIO))) == json.loads(json.dumps(plan(file))) == printed
    assert plan(SCENARIO, {"topology.devices": 5})["nodes"][-1]["name"] == "device-4"
    assert sorted(tmp_path.iterdir()) == [file]


def test_a_value_with_an_emoji_is_that_of_the_program() -> None:
    with pytest.raises(ScenarioError, match="📁"):  # it is not there
        plan(SCENARIO, {"data.dataset": "npz:📁.npz"})


def test_an_example_by_its_name() -> None:
    assert plan("hello", driver="sim")["name"] == "hello"
    with pytest.raises(ScenarioError, match="helo: neither a file nor"):
        plan("helo")


def test_a_scenario_that_is_right() -> None:
    validate(SCENARIO)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"links.device-cloud.latency": "5"}, "links.device-cloud.latency: "),
        ({"data.dataset": "npz:absent.npz"}, "data.dataset: .*absent.npz"),
    ],
)
def test_mistakes(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        validate(SCENARIO, changes)
