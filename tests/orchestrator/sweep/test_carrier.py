"""The program that carries out runs on a host."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from orchestrator.drivers.swarm.agents.settings import MARK
from orchestrator.host.process.python import ROOT
from orchestrator.run.launch import prepared_plan
from orchestrator.run.options import Origin
from orchestrator.run.remote import begun
from orchestrator.scenario.plugins import use
from orchestrator.scenario.reading import load
from tests.orchestrator.sweep.test_running import SCENARIO

ENDS_ELSEWHERE = """\
import os, signal
import edgebed

if os.environ["HOME"] == "/nowhere":
    print("a plug-in prints something", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
PLUGIN = edgebed.Plugin()
"""


@pytest.mark.slow
def test_each_run_is_told_of_whatever_becomes_of_its_process(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text(ENDS_ELSEWHERE)
    orders = []
    for name, text in (("good", SCENARIO), ("killed", f"{SCENARIO}plugins: [ends.py]\n")):
        file = tmp_path / f"{name}.yaml"
        file.write_text(text)
        scenario = load(file)
        plan = prepared_plan(scenario, file)
        directory = begun(plan, Origin(scenario, file), tmp_path / "runs")
        plugins = [asdict(each) for each in plan.plugins]
        orders.append({"run": directory.run, "data": Path(plan.data_directory).name, "plugins": plugins})
    use(())
    missing = {"run": "none-20260101-120000-aaaa", "data": "none", "plugins": []}
    data, nowhere = Path(plan.data_directory).parent, tmp_path / "runs" / str(missing["run"])
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "orchestrator.sweep.carrier", "pc-1", tmp_path / "runs", data],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ROOT, "HOME": "/nowhere"},
    ) as carrier:
        assert carrier.stdin is not None
        assert carrier.stdout is not None
        for order in (*orders, missing):
            carrier.stdin.write(json.dumps(order) + "\n")
        carrier.stdin.close()
        lines = carrier.stdout.readlines()  # to the end of the last run
    told: list[dict[str, Any]] = [json.loads(each.removeprefix(MARK)) for each in lines if each.startswith(MARK)]
    assert told[0] == {}
    assert {each["run"]: each["error"] for each in told[1:]} == {
        orders[0]["run"]: None,
        orders[1]["run"]: "the process of the run was killed by signal 9; is there not enough memory?",
        missing["run"]: f"FileNotFoundError: [Errno 2] No such file or directory: '{nowhere}/logs'",
    }
    assert [each for each in lines if not each.startswith(MARK)] == ["a plug-in prints something\n"]
