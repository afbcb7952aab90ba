"""SIGKILL of any part in the middle of a run."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from orchestrator.host.kernel.cgroups import writable_hierarchies
from orchestrator.host.process.processes import run_processes
from tests.e2e.harness import FEW, PACED, ROOT, Background, Result, command, json_of, traces_of, up, wait_for

pytestmark = pytest.mark.e2e

LONG = FEW.replace("rounds: 3", "rounds: 40") + "probe: {before: false}\ngathering: {quorum: 50%, deadline: 5s}\n"


def unplanned(result: Result) -> str:
    """What the check says of a run that was disturbed."""
    (check,) = [check for check in result.summary["checks"] if check["name"] == "no unplanned failures"]
    assert check["verdict"] == "fail"
    return str(check["detail"])


def stop_for(processes: Collection[int], seconds: float) -> None:
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    since = time.monotonic()
    wait_for(lambda: time.monotonic() - since >= seconds or None, "the end of the standstill", seconds + 5)
    for pid in processes:
        os.kill(pid, signal.SIGCONT)


def events(run: Background, name: str) -> list[str | None]:
    with run.history() as history:
        return [event.node for event in history.events(name)]


def test_kill_the_orchestrator(tmp_path: Path) -> None:
    with Background(tmp_path, LONG) as run:
        run.wait_round(2)
        name = run.directory.run
        assert traces_of(name)
        os.kill(run.process.pid, signal.SIGKILL)
        killed = time.monotonic()
        wait_for(lambda: traces_of(name) == [] or None, "the end of every process and cgroup of the run", 10.0)
        assert time.monotonic() - killed < 10.0
        assert run.directory.commands.exists()  # and nobody listens there
        said = json_of("down", name, "--runs", run.runs)
        assert not run.directory.commands.exists()
        assert said["runs"][0]["clean"]
        assert said["runs"][0]["left"] == []
        # The record is whole up to the end, and a report can still be made.
        report = json_of("report", name, "--runs", run.runs)
        assert report["rounds"] >= 1


def test_kill_the_switch(tmp_path: Path) -> None:
    with Background(tmp_path, LONG, "--engine", "userspace") as run:
        run.wait_round(2)
        os.kill(run.pid_of_part("switch"), signal.SIGKILL)
        result = run.result()
        assert result.code == 1
        assert result.summary["ended"] == "failed"
        assert "the switch" in result.summary["error"]
        assert traces_of(run.directory.run) == []


def ended(run: Background, node: str, pid: int) -> bool | None:
    """True once the process of a node is no longer this one."""
    return run.find(node) != pid or None


def hold(run: Background, node: str) -> None:
    """Stop a node once it has its interface, and nobody waits for it but the run; its model is not yet made then."""

    def attached() -> int | None:
        pid = run.find(node)
        with contextlib.suppress(OSError):
            return pid if "data0" in Path(f"/proc/{pid}/net/dev").read_text() else None
        return None

    os.kill(wait_for(attached, f"the interface of {node}"), signal.SIGSTOP)


@pytest.mark.parametrize("victim", ["cloud", "fork server", "anchor"])
def test_kill_before_anybody_registers(tmp_path: Path, victim: str) -> None:
    """A stopped node keeps the run from beginning to train; the end must come without waiting for it."""
    waiting, part = "edge-1", {"fork server": "node", "switch": "switch", "anchor": "hub"}
    with Background(tmp_path, LONG + "restart: never\n", "--engine", "userspace") as run:
        hold(run, waiting)
        pid = wait_for(lambda: run.find(victim) if victim not in part else run.helper(part[victim]), victim)
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        result = run.result(timeout=30)
        assert time.monotonic() - killed < 15, result.errors
        assert (result.code, result.summary["ended"]) == (1, "failed")
        assert "SIGKILL" in result.summary["error"]
        assert victim in result.summary["error"]
        assert "Error" not in result.errors
        assert traces_of(run.directory.run) == []
        assert not run.directory.nodes.exists()
        assert not run.directory.control.exists()


def test_a_device_without_memory(tmp_path: Path) -> None:
    if not any("memory" in each.controllers for each in writable_hierarchies()):
        pytest.skip("this host lets nobody limit memory")
    scenario = LONG + "hardware: {device: {memory: 1mib}}\n"
    began = time.monotonic()
    result = up(tmp_path, scenario)
    assert re.match(r"device-\d-0 ended \(out of memory", result.summary["error"])
    assert time.monotonic() - began < 60


def test_kill_the_anchor_in_the_middle(tmp_path: Path) -> None:
    with Background(tmp_path, LONG) as run:
        run.wait_round(2)
        os.kill(run.pid_of_part("hub"), signal.SIGKILL)
        result = run.result(timeout=30)
        assert (result.code, result.summary["ended"]) == (1, "failed")
        assert "anchor) ended (SIGKILL)" in result.summary["error"]
        assert traces_of(run.directory.run) == []


def test_down_after_the_anchor_and_the_orchestrator_were_killed(tmp_path: Path) -> None:
    with Background(tmp_path, LONG) as run:
        run.wait_round(1)
        directory, anchor = run.directory, run.pid_of_part("hub")
        assert list(directory.nodes.iterdir())
        for pid in (anchor, run.process.pid):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: run_processes(directory.run) == [] or None, "the end of every process", 10.0)
        listed = json_of("ps", "--runs", run.runs)
        (found,) = [each for each in listed["runs"] if each["run"] == directory.run]
        assert found["phase"] == "orphaned"
        assert {node["state"] for node in found["nodes"]} == {"gone"}
        assert json_of("down", directory.run, "--runs", run.runs)["runs"][0]["clean"]
        assert traces_of(directory.run) == []
        assert not directory.nodes.exists()
        assert not directory.control.exists()


def states_of(run: Background, node: str) -> list[str]:
    with run.history() as history:
        return [state.state for state in history.states() if state.node == node]


def kill_and_await(run: Background, node: str) -> None:
    """Kill a node in the middle of the training, and wait until it trains again."""
    run.wait_round(run.round() + 2)
    os.kill(run.pid_of(node), signal.SIGKILL)
    wait_for(lambda: states_of(run, node).count("running") == 2 or None, f"the return of {node}")


def test_kill_nodes_that_are_restarted(tmp_path: Path) -> None:
    with Background(tmp_path, LONG) as run:
        kill_and_await(run, "edge-1")
        kill_and_await(run, "cloud")
        result = run.result()
        assert (result.code, result.summary["ended"], result.summary["rounds"]) == (3, "rounds", 40), result.errors
        for node in ("edge-1", "cloud"):
            assert f"{node} at " in unplanned(result)
            assert states_of(run, node)[:5] == ["starting", "registered", "running", "crashed", "restarting"]
        assert unplanned(result).count("(SIGKILL") == 2
        with run.history() as history:
            (resumed,) = [event for event in history.events("resumed") if event.node == "cloud"]
        # The checkpoint of the round before may just be being written; the one before that was on disk.
        assert resumed.round is not None
        assert resumed.round >= 2


def test_stop_every_node_and_then_the_orchestrator(tmp_path: Path) -> None:
    with Background(tmp_path, LONG) as run:
        run.wait_round(2)
        with run.history() as history:
            nodes = {node: run.pid_of(node) for node in history.nodes}
        stop_for(nodes.values(), 4.0)
        run.wait_round(run.round() + 2)
        stop_for([run.process.pid], 4.0)
        result = run.result()
        assert result.code == 3
        with run.history() as history:
            frozen = {event.node: event.data["seconds"] for event in history.events("frozen")}
            (gap,) = history.events("gap")
        assert frozen.keys() == nodes.keys()
        # Up to a beat of it may be missed, and a busy host makes the threads of a process wait, which explains a part.
        assert all(1.0 <= seconds < 4.5 for seconds in frozen.values())
        assert 1.0 <= gap.data["stood_still"] < 4.5
        assert "stalled: the orchestrator for" in unplanned(result)


def test_kill_a_node_that_stays_away(tmp_path: Path) -> None:
    scenario = LONG.replace("rounds: 40", "rounds: 8").replace("devices_per_edge: 1", "devices_per_edge: 2")
    with Background(tmp_path, scenario + "restart: never\n") as run:
        run.wait_round(2)
        os.kill(run.pid_of("device-1-0"), signal.SIGKILL)
        result = run.result()
        assert (result.summary["ended"], result.summary["rounds"]) == ("rounds", 8)
        with run.history() as history:
            assert history.current_states()["device-1-0"].state == "crashed"


def test_down_of_a_living_run(tmp_path: Path) -> None:
    with Background(tmp_path, LONG.replace("rounds: 40", "rounds: 4000") + PACED) as run:
        run.wait_round(1)
        listed = json_of("ps", "--runs", run.runs)
        (entry,) = [each for each in listed["runs"] if each["run"] == run.directory.run]
        assert entry["phase"] == "running"
        assert {node["node"] for node in entry["nodes"]} >= {"cloud", "edge-0", "device-1-0"}
        done = subprocess.run(command("down", run.directory.run, "--runs", run.runs), cwd=ROOT, check=False)
        assert done.returncode == 0
        assert run.result(timeout=30).summary["ended"] == "interrupted"
        assert run.directory.report.exists()
        assert traces_of(run.directory.run) == []
