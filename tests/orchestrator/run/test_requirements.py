"""What a driver needs of the host is looked at before anything is made."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from orchestrator.errors import HostError
from orchestrator.run.launch import launch, prepared_plan
from orchestrator.scenario.reading import load

SCENARIO = """\
# Is the host looked at first?
name: first
algorithm: {name: hierfavg, rounds: 1}
data: {dataset: digits, partition: iid}
model: mlp
topology: {edges: 1, devices_per_edge: 1}
"""


def test_all_that_is_missing_is_told_at_once_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO)
    scenario = load(file, ())
    plan = prepared_plan(scenario, file)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError) as told:
        launch(plan, scenario, file, (), tmp_path / "runs", _unasked)
    for line, command in zip(str(told.value).splitlines(), ("unshare", "nsenter", "ip", "tc"), strict=True):
        assert f"the command '{command}' is missing" in line
    assert not (tmp_path / "runs").exists()


def _unasked(*_: object, **__: object) -> NoReturn:
    raise AssertionError("this is not to be asked")
