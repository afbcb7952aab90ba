from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.errors import MistakeError, RunError
from orchestrator.record.directory import RunDirectory
from orchestrator.scenario.actions import ACTIONS
from orchestrator.scenario.sections.faults import FaultSpec
from orchestrator.verbs.live import inject
from orchestrator.verbs.live.inject import chosen, fault_of, in_words
from tests.orchestrator.example_run import Example
from tests.texts import containing


def test_the_actions_are_those_of_a_scenario() -> None:
    assert tuple(FaultSpec.model_json_schema()["properties"]["action"]["enum"]) == ACTIONS


@pytest.mark.parametrize(
    ("action", "targets", "keys", "fault"),
    [
        ("crash", "device-0-1", {"for_": "5s"}, {"node": "device-0-1", "for": "5s"}),
        ("pause", "edge-0 edge-1", {}, {"nodes": ["edge-0", "edge-1"]}),
        ("pause", "devices", {"count": 2}, {"of": "devices", "count": 2}),
        ("partition", "edge-0,edge-1 cloud", {}, {"between": [["edge-0", "edge-1"], "cloud"]}),
        ("degrade", "edge-0 cloud", {"loss": "5%"}, {"between": ["edge-0", "cloud"], "loss": "5%"}),
        ("degrade", "edge-0", {"profile": "lte", "rate": None}, {"node": "edge-0", "profile": "lte", "rate": None}),
        ("slow", "edge-0", {"factor": 1.5}, {"node": "edge-0", "factor": 1.5}),
        ("degrade", "", {"medium": "cell-0", "rate": "2mbit"}, {"medium": "cell-0", "rate": "2mbit"}),
        ("move", "device-0-1", {"to": "edge-1"}, {"node": "device-0-1", "to": "edge-1"}),
        ("new-address", "device-0-1", {}, {"node": "device-0-1"}),
        ("handover", "device-0-1", {"to": "cell-1"}, {"node": "device-0-1", "to": "cell-1"}),
    ],
)
def test_a_fault_as_a_scenario_writes_it(
    action: str, targets: str, keys: dict[str, object], fault: dict[str, Any]
) -> None:
    assert fault_of(action, targets.split(), keys) == {"action": action, **fault}


def test_targets_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="partition: name both sides"):
        fault_of("partition", ["edge-0"], {})
    with pytest.raises(ValueError, match="crash: name a node, several nodes"):
        fault_of("crash", [], {})


def test_the_only_running_run_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (RunDirectory(tmp_path / name) for name in ("one", "two"))
    monkeypatch.setattr(inject, "running", lambda runs: [])
    with pytest.raises(RunError, match="no run of yours is running"):
        chosen(None, tmp_path)
    monkeypatch.setattr(inject, "running", lambda runs: [one])
    assert chosen(None, tmp_path) == one
    monkeypatch.setattr(inject, "running", lambda runs: [one, two])
    with pytest.raises(RunError, match="--run: one, two"):
        chosen(None, tmp_path)


def test_a_run_that_is_over_and_one_that_others_may_write_to(tmp_path: Path) -> None:
    Example().build(tmp_path / "good")
    with pytest.raises(RunError, match=r"good is over: nothing.*done"):
        chosen("good", tmp_path)
    (tmp_path / "good").chmod(0o777)
    with pytest.raises(RunError, match=r"good.*run of another user"):
        chosen("good", tmp_path)


def test_what_took_effect_in_words() -> None:
    crash = {"fault": 4, "action": "crash", "target": "edge-0", "for": 5.0, "at": 8.1, "t": 12.0, "round": 3}
    cut = {
        "fault": 5,
        "action": "partition",
        "target": "edge-0 | cloud",
        "for": None,
        "at": 8.1,
        "t": 12,
        "round": None,
    }
    assert in_words({"faults": [crash, cut], "notes": ["mind"]}) == [
        containing("fault 4: crash edge-0", "at 8.1 s"),
        containing("fault 5: partition edge-0", "at 8.1 s"),
        "note: mind",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["inject", "crush", "edge-0"], "'crush' is not one of 'crash'"),
        (["inject", "mine-1", "crash", "edge-0"], "'mine-1' is not one of 'crash'"),
        (["inject"], "Missing argument 'ACTION'"),
        (["inject", "crash", "edge-0", "--for", "{"], "not readable as YAML"),
        (["pace", "fast"], "'fast' is no pace: write"),
        (["pace"], "Missing argument 'PACE'"),
        (["faults", "--yaml", "--json"], "choose --yaml or --json"),
    ],
)
def test_a_command_that_makes_no_sense(words: list[str], said: str) -> None:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2
    assert said in done.output


def test_a_pace_for_real_time(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("algorithm: hierfavg\n")
    done = CliRunner().invoke(cli, ["up", str(tmp_path / "f.yaml"), "--pace", "10x", "--runs", str(tmp_path / "runs")])
    assert isinstance(done.exception, MistakeError)
    assert str(done.exception) == containing("pace: only for the driver")
