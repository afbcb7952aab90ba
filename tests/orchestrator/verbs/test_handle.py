"""Runs in the background of a program."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import MistakeError, RunError, ScenarioError
from orchestrator.record.rows import Event
from orchestrator.verbs.handle import start
from orchestrator.verbs.python_interface import load, up
from orchestrator.verbs.sources import validate
from tests.orchestrator.verbs.test_python_interface import ROOT, SCENARIO

ENDLESS = {"algorithm.rounds": 1_000_000}


def test_a_run_is_that_of_up(tmp_path: Path) -> None:
    handle = start(SCENARIO, runs=tmp_path, workers=1)
    run = handle.wait()
    assert run == handle.run == load(runs=tmp_path)
    assert not handle.running
    assert run.rows("metrics") == up(SCENARIO, runs=tmp_path, workers=1).rows("metrics")


def test_faults_and_paces(tmp_path: Path) -> None:
    with start(SCENARIO, {"algorithm.rounds": 5}, runs=tmp_path, workers=1, pace="pause") as handle:
        (made,) = handle.inject("crash", "device-0", for_="1s")
        assert (made["action"], made["target"], made["for"]) == ("crash", "device-0", 1.0)
        assert [handle.pace("step")["round"] for _ in range(2)] == [1, 2]
        assert handle.running
        with pytest.raises(TimeoutError):
            handle.wait(0.01)
        with pytest.raises(MistakeError, match="there is no node 'device-9'"):
            handle.inject("pause", "device-9")
        with pytest.raises(ValueError, match="pause: name a node"):
            handle.inject("pause")
        with pytest.raises(MistakeError, match="there is no medium 'cell-0'"):
            handle.inject("degrade", medium="cell-0", rate="2mbit")
        with pytest.raises(MistakeError, match="no pace"):
            handle.pace("quick")
        handle.pace("free")
    assert handle.run.summary["ended"] == "rounds"
    assert [each["action"] for each in handle.run.summary["faults"]] == ["crash"]
    assert handle.run.rows("events")[-1]["t"] > 1
    with pytest.raises(RunError, match="is over"):
        handle.inject("crash", "device-0")


def test_a_refused_fault(tmp_path: Path) -> None:
    with start(SCENARIO, runs=tmp_path, workers=1, pace="pause") as handle:
        handle.inject("pause", "device-0")
        with pytest.raises(RunError, match="pause device-0: "):
            handle.inject("pause", "device-0")
        handle.stop()


def test_a_stop(tmp_path: Path) -> None:
    handle = start(SCENARIO, ENDLESS, runs=tmp_path, workers=1)
    assert handle.stop().summary["ended"] == "interrupted"
    assert handle.stop() == handle.wait() == handle.run
    assert handle.run.report.exists()
    assert up(SCENARIO, runs=tmp_path, workers=1).summary["ended"] == "rounds"


def test_an_error_of_the_body_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), start(SCENARIO, ENDLESS, runs=tmp_path, workers=1):
        raise ZeroDivisionError
    assert load(runs=tmp_path).summary["ended"] == "interrupted"


def test_several_runs_in_an_event_loop(tmp_path: Path) -> None:
    async def main() -> list[Any]:
        async with start(SCENARIO, runs=tmp_path, workers=1) as handle:
            assert handle.running
        started = [start(SCENARIO, {"seed": seed}, runs=tmp_path, workers=1) for seed in (1, 2)]
        return [handle.run, *await asyncio.gather(*started)]

    one, same, other = asyncio.run(main())
    assert one.rows("metrics") == same.rows("metrics") != other.rows("metrics")


def test_a_task_that_is_cancelled_stops_the_run(tmp_path: Path) -> None:
    async def main() -> None:
        await asyncio.wait_for(start(SCENARIO, ENDLESS, runs=tmp_path, workers=1), 0.1)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    (run,) = tmp_path.iterdir()
    # the run ends in its own thread
    with start(SCENARIO, runs=tmp_path / "next", workers=1):
        pass
    assert load(run).summary["ended"] in ("interrupted", None)


def test_an_error_of_the_listener_is_raised_by_wait(tmp_path: Path) -> None:
    def hear(event: Event) -> None:
        raise ZeroDivisionError

    handle = start(SCENARIO, ENDLESS, runs=tmp_path, workers=1, on_event=hear)
    with pytest.raises(ZeroDivisionError):
        handle.wait()
    assert handle.run.summary["ended"] == "failed"


PLUGIN = """\
from edgebed import Plugin, plugin
from node.algorithms import fedavg
ROLES = fedavg.ROLES
PLUGIN = Plugin(algorithms=[plugin.Algorithm("own", params=plugin.LocalTraining, summary="FedAvg", flat=True)])
"""


def test_plug_ins_of_other_scenarios_do_not_disturb_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other file has the same name, and its algorithm has the same name with other parameters."""
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(PLUGIN)
    own = SCENARIO | {"plugins": ["own.py"], "algorithm": {"name": "own", "rounds": 8}}
    with start(own, workers=1, pace="pause") as handle:
        with pytest.raises(ScenarioError, match="'own' is no algorithm"):
            validate(SCENARIO | {"algorithm": "own"})
        Path("other").mkdir()
        Path("other/own.py").write_text(PLUGIN.replace("plugin.LocalTraining", "plugin.algorithm('fedavg').params"))
        theirs = SCENARIO | {"plugins": ["other/own.py"], "algorithm": {"name": "own", "rounds": 1}}
        theirs["algorithm"]["participation"] = 0.5  # no parameter of the first one
        assert up(theirs, workers=1).summary["ended"] == "rounds"
        assert up(SCENARIO, {"algorithm.rounds": 1}, workers=1).summary["ended"] == "rounds"
        assert handle.running, handle.wait().summary["error"]
        handle.inject("crash", "device-0", for_="100ms")  # it needs the plug-in when it starts again
        handle.pace("free")
    assert handle.run.summary["ended"] == "rounds"
    assert [row["state"] for row in handle.run.rows("states") if row["node"] == "device-0"].count("running") == 2
    validate(SCENARIO)


@pytest.mark.parametrize(
    ("scenario", "pace", "error", "told"),
    [
        (SCENARIO | {"modl": "mlp"}, None, ScenarioError, r"scenario.yaml:\d+: modl: "),
        (SCENARIO, "quick", RunError, "pace: 'quick' is no pace"),
        (SCENARIO | {"driver": "namespaces"}, "10x", RunError, "pace: only for the driver sim"),
    ],
)
def test_mistakes_are_raised_at_once(
    tmp_path: Path, scenario: dict[str, Any], pace: str | None, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        start(scenario, runs=tmp_path / "runs", pace=pace)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["sim", "namespaces"])
def test_a_program_that_ends_stops_its_run(tmp_path: Path, driver: str) -> None:
    code = f"import edgebed; edgebed.start({SCENARIO!r}, {ENDLESS!r}, driver={driver!r}, runs={str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert load(runs=tmp_path).summary["ended"] == "interrupted"


WAITING = """\
import os, signal, threading
import edgebed

handle = edgebed.start({scenario!r}, {endless!r}, runs={runs!r})
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    handle.wait()
except KeyboardInterrupt:
    print(handle.running, handle.run.summary["ended"])
"""


@pytest.mark.slow
def test_an_interruption_of_wait_stops_the_run(tmp_path: Path) -> None:
    code = WAITING.format(scenario=SCENARIO, endless=ENDLESS, runs=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "False interrupted\n", done.stderr
