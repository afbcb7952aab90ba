"""Programs on three hosts of a swarm: a small server and its clients, and what disturbs them."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.host.docker_socket import AGENT as AGENT_LABEL
from orchestrator.host.docker_socket import NODE
from orchestrator.record.directory import RunDirectory
from orchestrator.results.history import History
from tests.e2e.harness import Background, up, wait_for
from tests.e2e.image import import_commands
from tests.e2e.test_programs import CLIENT, PYTHON, SCENARIO, SERVER, lives
from tests.swarm.engines import IMAGE, Engines
from tests.swarm.test_run import containers_of, images_of, states, wait_until_nothing_is_left

pytestmark = pytest.mark.e2e

SMALL = "edgebed-test:programs"
"""An image that only the manager has, and that makes no nodes of an algorithm."""

APART = f"""\
{SCENARIO.replace("IMAGE", IMAGE)}
driver: swarm
hosts: {{cloud: a, device-0: b, device-1: c}}
probe: {{before: false}}
"""
FOR_EVER = f"""\
driver: swarm
topology: {{cloud: true, edges: 0, devices: 2}}
links: {{device-cloud: {{latency: 5ms}}}}
hosts: {{cloud: c, device: b}}
probe: {{before: false}}
programs:
  cloud: {{command: {PYTHON} -m http.server, image: "{IMAGE}", ready: {{port: 8000}}}}
  device: {{command: "./script.sh {{name}}", image: "{SMALL}", after: cloud}}
"""
SCRIPT = "#!/usr/bin/sh\necho life of $1\nsleep 600\n"


@pytest.fixture(autouse=True)
def settings(on_engines: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEBED_IMAGE", "edgebed-test:none")  # programs need no image of nodes


def test_they_talk_across_hosts_and_are_disturbed(tmp_path: Path, engines: Engines) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "client.py").write_text(CLIENT)
    result = up(tmp_path, APART, prefix=engines.manager.enter())
    assert result.code in (0, 3), (result.summary, result.errors)  # 3: links were late
    summary, directory = result.summary, RunDirectory(Path(result.summary["run"]))
    assert (summary["ended"], summary["error"]) == ("programs", None)
    assert {each["name"] for each in summary["checks"] if each["verdict"] == "fail"} <= {"links on time"}
    assert summary["rounds"] >= 8
    assert summary["accuracy"]["global"] == pytest.approx(summary["rounds"] / 10)
    assert {fault["action"] for fault in summary["faults"] if fault["at"] is not None} == {
        "crash",
        "pause",
        "partition",
    }
    assert summary["bytes"]["device-cloud"] > 0
    with History.open(directory.path) as history:
        assert {row.node for row in history.resources()} == {"cloud", "device-0", "device-1"}
    assert "serving as cloud with blue" in (directory.logs / "cloud.log").read_text()
    assert sorted(lives(directory)) == [("device-0", 1), ("device-1", 1), ("device-1", 2)]
    assert (directory.checkpoints_of("device-1") / "lives").read_text() == "2"  # it has come back from c
    wait_until_nothing_is_left(engines, directory.run)


def test_they_come_back_with_their_host_and_end_with_their_orchestrator(tmp_path: Path, engines: Engines) -> None:
    with closing(engines.manager.daemon.client()) as client:
        import_commands(client, SMALL, ["sh", "sleep"])
    script = tmp_path / "script.sh"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    a, b, c = engines.hosts
    with Background(tmp_path, FOR_EVER, prefix=engines.manager.enter()) as run, closing(b.daemon.client()) as client:
        log = run.directory.logs / "device-1.log"
        wait_for(lambda: (log.exists() and log.read_text() == "life of device-1\n") or None, "the programs", 60.0)
        assert [SMALL in images_of(host) for host in (a, b, c)] == [True, True, False]
        name = run.directory.run
        (agent,) = containers_of(client, f"{AGENT_LABEL}={name}")
        client.containers.get(agent).kill("SIGKILL")
        wait_for(lambda: (log.read_text() == 2 * "life of device-1\n") or None, "their return", 60.0)
        assert "crashed" in states(run, "device-1")
        assert states(run, "cloud") == ["starting", "registered", "running"]
        assert len(containers_of(client, f"{NODE}=device-1")) == 2  # one holds the node
        os.kill(run.process.pid, signal.SIGKILL)
        wait_until_nothing_is_left(engines, name)
