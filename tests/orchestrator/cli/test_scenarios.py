from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from orchestrator.cli.scenarios import validate

SCENARIO = """\
topology: {cloud: true, edges: 1, devices_per_edge: 1}
programs: {cloud: serve, edge: relay, device: "ask {cloud}"}
"""
NOTE = (
    "programs.device names {cloud} on device-0-0, and no link joins cloud with it: nothing that is sent there arrives"
)


def test_validate_has_the_notes_of_the_plan(tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(SCENARIO)
    shown = CliRunner().invoke(validate, [str(scenario)])
    assert shown.output == f"{scenario}: valid (3 nodes)\nnote: {NOTE}\n"
    as_json = CliRunner().invoke(validate, [str(scenario), "--json"])
    assert json.loads(as_json.output)["notes"] == [NOTE]
