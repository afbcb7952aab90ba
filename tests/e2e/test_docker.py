"""Whole runs whose nodes are containers of a real Docker Engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from edgebed.testing.drivers import opened
from orchestrator.drivers.base import Exit
from orchestrator.drivers.docker import leftovers
from orchestrator.drivers.docker.driver import DockerDriver
from orchestrator.drivers.docker.engine import Engine
from orchestrator.fabric.namespaces import tcp
from orchestrator.host import docker_socket
from orchestrator.record.directory import RunDirectory
from orchestrator.record.rows import SHARED
from orchestrator.results.history import History
from orchestrator.results.traffic.media import channel_counters
from orchestrator.scenario.sections.hardware import HardwareClass
from tests.e2e.engine import Place
from tests.e2e.harness import FEW, ROOT, THREE, Background, command, json_of, resuming, traces_of, up, wait_for

pytestmark = pytest.mark.e2e

IN_CONTAINERS = """\
driver: docker
hardware: {device: {class: raspberry-pi-4, memory: 1gb}}
probe: {before: false}
"""
THREE_IN_CONTAINERS = THREE + IN_CONTAINERS
LONG = THREE_IN_CONTAINERS.replace("rounds: 3", "rounds: 200")
PROBED = FEW + IN_CONTAINERS.replace("probe: {before: false}\n", "")
CELLS_AND_FAULTS = """\
shared: {cell-0: {up: 8mbit, down: 20mbit, members: [device-*-*]}, cell-1: {rate: 4mbit}}
faults:
  - {round: 1, node: device-0-0, action: crash, for: 1s}
  - {round: 1, node: device-1-0, action: pause, for: 1s}
  - {round: 2, node: device-1-0, action: handover, to: cell-1}
gathering: {quorum: 50%, deadline: 20s}
"""


def assert_same_tcp(run: Path) -> None:
    """The nodes of all hosts had the settings that make transfers comparable."""
    with closing(History.open(run)) as history:
        assert history.tcp.items() >= tcp.SETTINGS.items()


def status(pid: int) -> dict[str, str]:
    """What the kernel says of a process (proc(5))."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_a_run_with_cells_and_faults_ends_and_leaves_nothing(tmp_path: Path, engine: Engine) -> None:
    result = up(tmp_path, PROBED + CELLS_AND_FAULTS, timeout=300)
    assert result.summary["ended"] == "rounds", result.errors
    assert (result.summary["driver"], result.summary["rounds"]) == ("docker", 3)
    assert result.summary["accuracy"]["global"] > 0.5  # ten classes: guessing gives 0.1
    assert all(fault["at"] is not None for fault in result.summary["faults"])
    run = Path(result.summary["run"])
    assert_same_tcp(run)
    assert engine.containers(run.name) == []
    assert traces_of(run.name) == []
    assert not (run / "nodes").exists()  # the keys
    for node in ("cloud", "edge-0", "edge-1"):  # a device that crashes may not be back before a busy run's end
        assert "ended" in (run / "logs" / f"{node}.log").read_text()
    with closing(History.open(run)) as history:
        probes = [probe for probe in history.probes() if probe.link_class == SHARED]
        carried = {(row.channel, row.member): row.bytes for row in channel_counters(history)}
    assert {(probe.source, probe.verdict) for probe in probes} == {("cell-0 up", "pass"), ("cell-0 down", "pass")}
    assert min(carried["cell-0 up", "device-0-0"], carried["cell-1 up", "device-1-0"]) > 50_000


def test_nodes_hold_no_right_and_the_orchestrator_and_the_engine_may_be_killed(
    tmp_path: Path, engine: Engine, place: Place
) -> None:
    """After the orchestrator they end by themselves and the run is resumed. After the Engine it fails, and what is left
    goes by `down`."""
    with Background(tmp_path, LONG + "timeouts: {beat: 500ms, lost_after: 5s, lease: 2s}\n") as run:
        run.wait_round(1, timeout=200)
        name = run.directory.run
        nodes = {each.node: each for each in engine.containers(name)}
        assert len(nodes) == 3
        pid = nodes["device-0"].pid
        assert pid is not None
        known = status(pid)
        assert (known["CapEff"], known["CapBnd"], known["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1")
        assert "0" not in known["Uid"].split() + known["Gid"].split()
        limits = engine.client.containers.get(nodes["device-0"].id).attrs["HostConfig"]
        assert (limits["CpuQuota"] / limits["CpuPeriod"], limits["Memory"]) == (4, 10**9)
        # Tests beside this one have runs on this host too.
        (living,) = [each for each in json_of("ps", "--runs", run.runs)["runs"] if each["run"] == name]
        assert {each["node"]: each["pid"] for each in living["nodes"]} == {
            each.node: each.pid for each in nodes.values()
        }
        look = "for name in ('net/dev', 'self/status'): print(open(f'/proc/{name}').read())\nraise SystemExit(7)"
        python = Path(sys.executable).resolve()  # the image has no shell
        words = command("exec", "device-0", "--json", "--runs", run.runs, "--", python, "-c", look)
        inside = json.loads(subprocess.run(words, cwd=ROOT, capture_output=True, check=False).stdout)
        assert (inside["code"], inside["stderr"]) == (7, "")
        assert "data0:" in inside["stdout"]
        assert f"CapEff:\t{'0' * 16}\n" in inside["stdout"]

        os.kill(run.process.pid, signal.SIGKILL)
        wait_for(lambda: not (engine.containers(name) or traces_of(name)) or None, "the end of everything", 60.0)
        reached = run.round()
        with resuming(run.directory) as resumed:
            run.wait_round(reached + 2, timeout=200)
            if place.daemon is None:
                resumed.kill()  # the Engine is not the tests' own
            else:
                place.daemon.kill()
                assert resumed.wait(60) == 1
                with closing(run.history()) as history:
                    assert history.outcome is not None
                    assert history.outcome.ended == "failed"
                assert traces_of(name) == []  # by the label of their processes
                place.daemon.start()
        assert json_of("down", name, "--runs", run.runs)["runs"][0]["clean"]
        assert name not in [each["run"] for each in json_of("ps", "--runs", run.runs)["runs"]]
        assert engine.containers(name) == []
        assert leftovers.listed() == []
        assert traces_of(name) == []


@pytest.mark.usefixtures("engine")
def test_what_is_missing_is_said_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEBED_IMAGE", "nobody/has-this:1")
    result = up(tmp_path, THREE_IN_CONTAINERS)
    assert result.code == 1
    assert "docker build --file images/node/Dockerfile --tag nobody/has-this:1 ." in result.errors
    assert "Traceback" not in result.errors
    assert list((tmp_path / "runs").glob("*")) == []


HOSTILE = """
import ctypes, os, signal, socket

def attempt(what, act):
    try:
        act()
    except OSError as error:
        print("could not", what, error.strerror, flush=True)
    else:
        print("COULD", what, flush=True)

def mount():
    if ctypes.CDLL(None, use_errno=True).mount(b"none", b"/tmp", b"tmpfs", 0, None):
        raise OSError(ctypes.get_errno(), "refused")

def multiply():
    for _ in range(300):
        if os.fork() == 0:
            signal.pause()

inside = "/run/edgebed/"
attempt("change its assignment", lambda: open(inside + "assignment.json", "a"))
attempt("change the data", lambda: open(inside + "data/mine", "w"))
attempt("remove the control plane", lambda: os.unlink(inside + "control/socket"))
attempt("stand beside the control plane", lambda: open(inside + "control/mine", "w"))
attempt("write into the image", lambda: open("/mine", "w"))
attempt("change the kernel", lambda: open("/proc/sys/kernel/hostname", "w"))
attempt("become root", lambda: os.setuid(0))
attempt("mount", mount)
attempt("forge packets", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 255))
attempt("reach anything", lambda: socket.create_connection(("192.0.2.1", 80), 1))
attempt("multiply", multiply)
print("alone" if sum(name.isdigit() for name in os.listdir("/proc")) <= 256 else "COULD see others", flush=True)
b"x" * (300 << 20)
print("COULD take memory", flush=True)
"""


async def test_a_hostile_container_gets_nowhere(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = os.environ["EDGEBED_IMAGE"]
    python = engine.client.images.get(image).attrs["Config"]["Entrypoint"][0]
    made = engine.client.containers.create(image)
    made.commit("edgebed-test-hostile", "1", changes=f"ENTRYPOINT {json.dumps([python, '-c', HOSTILE])}")
    made.remove()
    monkeypatch.setenv("EDGEBED_IMAGE", "edgebed-test-hostile:1")
    directory = RunDirectory.create(tmp_path, "stage")
    async with AsyncExitStack() as stack:
        stack.callback(engine.client.images.remove, "edgebed-test-hostile:1")
        stage = await opened(lambda data: DockerDriver(Engine.connect(), directory, data), directory, stack)
        node = stage.plan.node("device-0")
        small = replace(node, hardware=HardwareClass("small", memory=100 << 20))
        handle = await stage.driver.start(small, stage.assignment("device-0"), stage.log("device-0"))
        assert await stage.exit() == Exit("device-0", handle, -9, out_of_memory=True)
    said = stage.log("device-0").read_text()
    assert said.count("could not") == 11
    assert "alone" in said
    assert "COULD" not in said


def test_without_root_a_helper_attaches_the_links(tmp_path: Path, engine: Engine) -> None:
    """As a user of the Engine's group and no other right but to read what this test may read."""
    group = Path(docker_socket.address().removeprefix("unix://")).stat().st_gid
    right = "+dac_read_search"
    as_user = (
        *("setpriv", "--reuid", "1234", "--regid", "1234", "--groups", str(group)),
        *("--inh-caps", right, "--ambient-caps", right),
        *("env", f"EDGEBED_CACHE={tmp_path}/cache", f"HOME={tmp_path}"),
    )
    os.chown(tmp_path, 1234, 1234)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == 0 and folder.name.startswith("pytest-"):
            folder.chmod(0o711)
    result = up(tmp_path, THREE_IN_CONTAINERS, "--set", "probe.before=true", prefix=as_user, timeout=300)
    assert result.summary["ended"] == "rounds", result.errors
    probed = next(check for check in result.summary["checks"] if check["name"] == "links as configured")
    assert probed["verdict"] != "unknown", probed
    run = Path(result.summary["run"])
    assert_same_tcp(run)
    wait_for(lambda: engine.containers(run.name) == [] or None, "the helper's removal")
    assert traces_of(run.name) == []
