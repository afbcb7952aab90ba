"""What a driver needs of the host is looked at before anything is made."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.errors import HostError, PlanError
from orchestrator.planning.making import make_plan
from orchestrator.run.launch import launch, prepared_plan
from orchestrator.run.options import Origin
from orchestrator.run.preparation import models_of_a_round, require_room
from orchestrator.scenario.reading import load, parse
from tests.orchestrator.labels import prepared

SCENARIO = """\
# Is the host looked at first?
name: first
algorithm: {name: hierfavg, rounds: 1}
data: {dataset: digits, partition: iid}
model: mlp
topology: {edges: 1, devices_per_edge: 1}
"""


def test_all_that_is_missing_is_reported_at_once_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO)
    scenario = load(file, ())
    plan = prepared_plan(scenario, file)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError) as told:
        launch(plan, Origin(scenario, file), tmp_path / "runs", _unasked)
    for line, command in zip(str(told.value).splitlines(), ("unshare", "nsenter", "ip", "tc"), strict=True):
        assert f"the command '{command}' is missing" in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("lines", "models"),
    [
        ("algorithm: fedavg\ntopology: {devices: 20}", 20),
        ("algorithm: {name: hierfavg, participation: 0.25}\ntopology: {edges: 2, devices_per_edge: 5}", 3),
        ("algorithm: fedavg\ntopology: {edges: 3, devices_per_edge: 0}", 3),
        ("algorithm: fedavg\ndriver: sim\ntopology: {population: 500, selected: 7}\ndata: {samples_per_client: 9}", 7),
        ("programs: {cloud: 'true', device: 'true'}\ntopology: {devices: 20}", 0),
    ],
)
def test_the_models_that_a_round_holds_at_least(lines: str, models: int) -> None:
    """One of each client: 25 % of 10 devices are 2.5, of which at least 3 models are sent."""
    scenario = parse(lines, "f.yaml")
    assert models_of_a_round(make_plan(scenario, prepared() if scenario.algorithm is not None else None)) == models


def test_a_run_that_needs_more_memory_than_the_host_has_is_refused_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """90 models of 3,000,000 hidden units of 8 x 8 pictures: 4 bytes x (65 x 3e6 + 3e6 x 10 + 10) x 90 = 81 GB. 91
    nodes of 8 MB: 0.7 GB."""
    monkeypatch.setattr("orchestrator.run.preparation.host_memory", lambda: 16 * 10**9)
    plan = make_plan(
        parse("algorithm: fedavg\ndriver: sim\nmodel: {name: mlp, hidden: 3000000}\ntopology: {devices: 90}", "f.yaml"),
        prepared(),
    )
    with pytest.raises(HostError, match=r"models of 90 clients.*16 GB"):
        require_room(plan)
    (tmp_path / "f.yaml").write_text("algorithm: fedavg\nmodel: {name: mlp, hidden: 3000000}\ntopology: {devices: 90}")
    for command in ("validate", "plan"):
        done = CliRunner().invoke(cli, [command, str(tmp_path / "f.yaml")])
        assert isinstance(done.exception, HostError | SystemExit)
        said = str(done.exception) + done.output
        assert "round take at least 81.7 GB" in said


def test_a_model_that_no_message_carries_is_refused() -> None:
    """4 bytes x (65 + 10) x 3,600,000 = 1,080,000,040 bytes are more than 2^30; of 3,500,000 hidden units 1.05e9 are
    less."""
    text = "algorithm: fedavg\ndriver: sim\nmodel: {name: mlp, hidden: %d}\ntopology: {devices: 2}"
    assert make_plan(parse(text % 3_500_000, "f.yaml"), prepared()).model_bytes < 1 << 30
    with pytest.raises(PlanError, match=r"^model: mlp has 1.08 GB.*message"):
        make_plan(parse(text % 3_600_000, "f.yaml"), prepared())


def _unasked(*_: object, **__: object) -> NoReturn:
    raise AssertionError("this is not to be asked")
