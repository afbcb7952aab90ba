from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from orchestrator.cli.scenarios import validate
from tests.texts import containing

SCENARIO = """\
topology: {cloud: true, edges: 1, devices_per_edge: 1}
programs: {cloud: serve, edge: relay, device: "ask {cloud}"}
"""
NOTE = containing("programs.device names {cloud} on device-0-0", "no link")


def test_validate_has_the_notes_of_the_plan(tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(SCENARIO)
    shown = CliRunner().invoke(validate, [str(scenario)])
    valid, note = shown.output.splitlines()
    assert valid == f"{scenario}: valid (3 nodes)"
    assert note == NOTE
    as_json = CliRunner().invoke(validate, [str(scenario), "--json"])
    assert json.loads(as_json.output)["notes"] == [NOTE]
