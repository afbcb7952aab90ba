"""Runs that a program makes and reads."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.errors import RunError, ScenarioError
from orchestrator.host.process.processes import run_processes
from orchestrator.record.rows import Event, Metric
from orchestrator.verbs.python_interface import Run, compare, load, runs, up

ROOT = Path(__file__).parents[3]

SCENARIO: dict[str, Any] = {
    "name": "mapped",
    "algorithm": {"name": "fedavg", "rounds": 2},
    "data": {"dataset": "digits", "partition": "iid", "samples_per_client": 40},
    "model": "mlp",
    "topology": {"edges": 0, "devices": 2, "cloud": True},
    "links": {"device-cloud": {"latency": "5ms", "rate": "20mbit"}},
    "driver": "sim",
}


def test_a_mapping_and_a_file_give_the_same_run(tmp_path: Path) -> None:
    file = tmp_path / "same.yaml"
    file.write_text(yaml.safe_dump(SCENARIO))
    mapped = up(SCENARIO, runs=tmp_path / "runs", workers=1)
    read = up(str(file), runs=tmp_path / "runs", workers=1)
    assert mapped.verdict == read.verdict != "fail"
    assert mapped.summary["rounds"] == 2
    assert mapped.rows("metrics") == read.rows("metrics")
    assert set(mapped.rows("metrics")[0]) == {*Metric._fields, "step"}
    assert yaml.safe_load((mapped.path / "scenario.yaml").read_text()) == SCENARIO
    assert (read.path / "scenario.yaml").read_bytes() == file.read_bytes()
    with mapped.history() as history:
        assert history.driver == "sim"
    assert load(mapped.path) == load(mapped.path.name, runs=tmp_path / "runs") == mapped
    assert load(runs=tmp_path / "runs") == read


def test_what_a_run_is(tmp_path: Path) -> None:
    run = up(SCENARIO, {"seed": 7}, runs=tmp_path, workers=1)
    assert (run.id, run.name, run.driver, run.seed) == (run.path.name, "mapped", "sim", 7)
    assert run.duration == pytest.approx(run.summary["seconds"], abs=0.001)
    assert run.report.read_text().startswith("<!doctype html>")
    assert "state running" in run.logs("device-1")
    assert repr(run) == f"Run({str(run.path)!r})" == repr(Run(str(run.path)))  # type: ignore[arg-type]
    with pytest.raises(RunError, match="has no node 'device-9'"):
        run.logs("device-9")


def test_the_runs_of_a_folder(tmp_path: Path) -> None:
    assert runs(tmp_path / "none") == []
    made = [up(SCENARIO, {"algorithm.rounds": 1, "seed": seed}, runs=tmp_path, workers=1) for seed in (1, 2)]
    assert runs(tmp_path) == made
    assert list(compare(runs(tmp_path)).seed) == [1, 2]


FAULT = {"action": "crash", "node": "device-0", "round": 2, "for": "1s"}


def test_events_are_received_in_order_while_the_run_continues(tmp_path: Path) -> None:
    heard: list[Event] = []
    ended: set[Any] = set()

    def hear(event: Event) -> None:
        heard.append(event)
        ended.add(load(runs=tmp_path).summary["ended"])

    run = up(SCENARIO | {"faults": [FAULT]}, runs=tmp_path, workers=1, on_event=hear)
    assert ended == {None}
    times = [event.t for event in heard]
    assert times == sorted(times)
    with run.history() as history:
        recorded, metrics, states = history.events(), history.metrics(None), history.states()
    assert [event for event in heard if event in recorded] == recorded
    values = [(event.t, event.node, event.name, event.data["value"]) for event in heard if "value" in event.data]
    assert values == [(each.t, each.node, each.name, each.value) for each in metrics]
    assert sum(event.name == "state" for event in heard) == len(states)
    assert len(heard) == len(recorded) + len(metrics) + len(states) + 2
    told = [event.data for event in heard if event.name == "fault"]
    assert [(each["action"], each["target"], each["phase"]) for each in told] == [
        ("crash", "device-0", "start"),
        ("crash", "device-0", "end"),
    ]


class StrangeError(Exception):
    pass


@pytest.mark.parametrize("raised", [StrangeError("enough"), RunError("enough"), SystemExit(5)])
@pytest.mark.parametrize("name", ["state", "training", "accuracy"])
def test_an_error_of_the_listener_ends_the_run_and_is_raised(tmp_path: Path, name: str, raised: BaseException) -> None:
    calls = []

    def hear(event: Event) -> None:
        calls.append(event)
        if event.name == name:
            raise raised

    with pytest.raises(type(raised)) as found:
        up(SCENARIO, runs=tmp_path, workers=1, on_event=hear)
    assert found.value is raised
    assert [event.name for event in calls].count(name) == 1
    run = load(runs=tmp_path)
    assert (run.summary["ended"], run.verdict) == ("failed", "fail")
    assert run.summary["error"] == f"on_event raised {type(raised).__name__}: {raised}"
    assert (run.path / "report.html").exists()
    assert up(SCENARIO, ["algorithm.rounds=1"], runs=tmp_path, workers=1).summary["ended"] == "rounds"


def test_a_kind_of_rows_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="record has no 'accuracies'"):
        load_example(tmp_path).rows("accuracies")


def load_example(folder: Path) -> Any:
    return up(SCENARIO, overrides=["algorithm.rounds=1"], runs=folder, workers=1)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"modl": "mlp"}, r"scenario.yaml:\d+: modl: "),
        ({"links": {"device-cloud": {"latency": Path("x")}}}, r"mapping: .*cannot be written as YAML"),
        ({"data": {"dataset": "npz:absent.npz"}}, r"scenario.yaml:\d+: data.dataset: .*absent.npz"),
    ],
)
def test_mistakes_are_reported_before_anything_is_made(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        up(SCENARIO | change, runs=tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []


def test_workers_of_a_driver_that_has_none(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="workers: only for the driver"):
        up(SCENARIO | {"driver": "namespaces"}, runs=tmp_path / "runs", workers=2)


def test_inside_an_event_loop(tmp_path: Path) -> None:
    """A notebook's cell."""

    async def cell() -> Run:
        return up(SCENARIO, runs=tmp_path / "runs")

    assert asyncio.run(cell()).summary["ended"] == "rounds"


def test_in_a_thread(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(up, SCENARIO, runs=tmp_path / "runs").result()
    assert run.summary["ended"] == "rounds"
    assert signal.getsignal(signal.SIGINT) is before


CELL = """\
import asyncio, contextlib, os, signal, threading, time
import edgebed

def interrupt_after_a_round():
    while True:
        with contextlib.suppress(Exception):
            if edgebed.load(runs={runs!r}).summary["rounds"] > 0:
                break
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

async def cell():
    threading.Thread(target=interrupt_after_a_round, daemon=True).start()
    edgebed.up({scenario!r}, {{"algorithm.rounds": 100_000}}, runs={runs!r})

try:
    asyncio.run(cell())
except KeyboardInterrupt:
    print(edgebed.load(runs={runs!r}).summary["ended"])
print(edgebed.up({scenario!r}, {{"algorithm.rounds": 1}}, driver="sim", runs={runs!r} + "/next").summary["ended"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["sim", "namespaces"])
def test_an_interruption_of_a_cell_ends_the_run_in_order(tmp_path: Path, driver: str) -> None:
    code = CELL.format(scenario=SCENARIO | {"driver": driver}, runs=str(tmp_path / "runs"))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "interrupted\nrounds\n", done.stderr
    assert run_processes(load(runs=tmp_path / "runs").path.name) == []


def test_overrides_as_a_mapping_and_the_driver(tmp_path: Path) -> None:
    changes = {"algorithm.rounds": 1, "name": "other", "links.device-cloud": {"latency": "7ms"}}
    run = up(SCENARIO | {"driver": "namespaces"}, overrides=changes, driver="sim", runs=tmp_path / "runs")
    with run.history() as history:
        assert (history.plan["name"], history.plan["driver"]) == ("other", "sim")
        assert history.plan["links"][0]["profile"]["latency"] == "7ms"
    assert run.summary["rounds"] == 1


def test_a_run_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no run in"):
        load(runs=tmp_path)
