from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.record.events.run import Injected
from orchestrator.record.writer import Record
from tests.orchestrator.example_run import Example, plan_of
from tests.texts import containing

RULE = {"at": "9s", "node": "device-1-2", "action": "crash", "for": "7s"}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    Example(by_hand=True, settings={"faults": [RULE]}).build(tmp_path / "touched")
    Example(with_faults=False).build(tmp_path / "quiet")
    return tmp_path


def said(runs: Path, *words: str) -> str:
    done = CliRunner().invoke(cli, ["faults", *words, "--runs", str(runs)])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_rules_of_the_scenario_and_what_was_done_manually(runs: Path) -> None:
    text = said(runs, "touched", "--yaml")
    assert "  - {at: 12s, node: device-0-0, action: crash, for: 3s}  # manual: ada, round 4\n" in text
    assert yaml.safe_load(text) == {
        "faults": [RULE, {"at": "12s", "node": "device-0-0", "action": "crash", "for": "3s"}]
    }
    by_round = yaml.safe_load(said(runs, "touched", "--yaml", "--by", "round"))["faults"]
    assert by_round[1] == {"round": 4, "node": "device-0-0", "action": "crash", "for": "3s"}
    assert yaml.safe_load(said(runs, "quiet", "--yaml")) == {"faults": []}


def test_a_node_that_joined_manually_is_in_no_other_rule(tmp_path: Path) -> None:
    one, other = "device-0-0", "device-0-1"
    joins = [{"id": id, "action": "join", "node": node, "at": None, "round": 4} for id, node in enumerate((one, other))]
    written = {"at": "3s", "node": one, "action": "join"}
    effective = {"faults": [RULE, {"round": 4, "nodes": [one, other], "action": "join"}]}
    plan = json.dumps(plan_of(Example()) | {"faults": joins})
    with contextlib.closing(Record.create(tmp_path / "run", plan, {"effective": effective})) as record:
        planned = {"action": "join", "node": one, "at": 3.0, "round": None}
        record.event(9.5, None, Injected.NAME, 1, {"fault": 2, "user": "ada", "written": written, "planned": planned})
    rules = yaml.safe_load(said(tmp_path, "run", "--yaml"))["faults"]
    assert rules == [RULE, {"round": 4, "node": other, "action": "join"}, written]


def test_the_faults_of_a_run(runs: Path) -> None:
    lines = said(runs, "touched").splitlines()
    assert lines[3].split() == ["1", "crash", "device-1-2", "planned", "9.00", "s", "16.00", "s", "3"]
    assert lines[-1].split()[:5] == ["22", "crash", "device-0-0", "manual", "(ada)"]
    assert said(runs, "quiet").strip() == containing("quiet: no faults were planned", "none")
    *_, made = json.loads(said(runs, "touched", "--json"))["faults"]
    assert (made["by"], made["start"], made["end"], made["planned"]["duration"]) == ("ada", 12.0, 15.0, 3.0)
