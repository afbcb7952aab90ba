"""Sweeps on three hosts of a swarm."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.container import VOLUME
from orchestrator.drivers.swarm.cluster import Cluster
from orchestrator.host.directory import known_runs
from tests.e2e.harness import ROOT, SMALL, command, json_of, wait_for
from tests.swarm.engines import Engines

pytestmark = pytest.mark.e2e

PLUGIN = """\
import edgebed


def read():
    raise AssertionError


PLUGIN = edgebed.Plugin(profiles={"slow": {"latency": "30ms", "rate": "5mbit"}})
"""
SWEEP = """\
scenario: small.yaml
cases:
  small: {}
  slow: {links.device-edge: slow}
  islands: {algorithm: {name: onlyedge, rounds: 3, learning_rate: 0.2}}
seeds: [1, 2, 3, 4]
target: {accuracy: 50%}
"""
NAMES = re.compile(r"mine-\d{8}-\d{6}-[0-9a-f]{4}")


@pytest.fixture(autouse=True)
def settings(on_engines: None, engines: Engines) -> Iterator[None]:
    yield
    for sweep in {name for each in everything(engines) for name in NAMES.findall(each)}:  # of a test that failed
        json_of("down", sweep)


def everything(engines: Engines) -> list[str]:
    """All containers and volumes of the hosts, services and secrets, besides the data sets that hosts keep."""
    found = []
    for host in engines.hosts:
        with closing(host.daemon.client()) as client:
            found += [f"{host.name}: {each.name}" for each in client.containers.list(all=True, ignore_removed=True)]
            found += [f"{host.name}: volume {each.name}" for each in client.volumes.list() if each.name != VOLUME]
    with closing(engines.manager.daemon.client()) as client:
        found += [each.name for kind in (client.services, client.secrets) for each in kind.list()]
    return found


def words(tmp_path: Path, runs: str, *arguments: str) -> list[str]:
    (tmp_path / "small.yaml").write_text(SMALL.replace("links:", "plugins: [links.py]\nlinks:"))
    (tmp_path / "links.py").write_text(PLUGIN)
    (tmp_path / "mine.yaml").write_text(SWEEP)
    return command("sweep", tmp_path / "mine.yaml", "--driver", "sim", "--runs", tmp_path / runs, "--json", *arguments)


def table(said: str) -> list[dict[str, Any]]:
    """The cases without the figures that a host's own clock tells."""
    return [
        {
            "case": case["case"],
            "figures": {name: spread for name, spread in case["figures"].items() if name != "wall_seconds"},
            "verdicts": [each["verdict"] for each in case["runs"]],
        }
        for case in json.loads(said)["cases"]
    ]


def test_twelve_runs_give_the_table_of_one_host_though_a_host_is_killed(tmp_path: Path, engines: Engines) -> None:
    lost, lines = engines.hosts[2], list[str]()
    on_swarm = [*engines.manager.enter(), *words(tmp_path, "spread", "--on", "swarm", "--workers", "1")]
    with subprocess.Popen(on_swarm, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as spread:
        assert spread.stderr is not None
        assert spread.stdout is not None
        for line in spread.stderr:
            lines.append(line)
            if "starts on c" in line and not lost.daemon.was_killed:
                lost.daemon.kill()  # at once: a run takes half a second
        said = spread.stdout.read()
    lost.daemon.start()
    assert spread.returncode == 0, lines
    assert any(line.startswith("the host c is lost: ") for line in lines), lines
    (stopped,) = [line for line in lines if ": stopped, and starts again elsewhere: c: " in line]
    done = [line.partition(" ")[0] for line in lines if ": done on " in line]
    assert len(set(done)) == 12, lines
    assert stopped.partition(" ")[0] in done
    here = subprocess.run(words(tmp_path, "here"), capture_output=True, text=True, cwd=ROOT, check=True)
    assert table(said) == table(here.stdout)

    (sweep,) = re.findall(r"^starting agents on 3 hosts \((.*)\)$", lines[0])
    stays = [f"c: {sweep}-agent", f"c: volume {sweep}"]
    wait_for(lambda: everything(engines) == stays or None, "the end of all else")
    wait_for(lambda: _is_ready("c") or None, "the return of the host")
    removed = json_of("down", sweep, "--runs", tmp_path / "spread")["runs"][0]
    assert removed["clean"], removed
    wait_for(lambda: everything(engines) == [] or None, "the end of everything")


def test_a_sweep_that_is_killed_or_interrupted_leaves_nothing(tmp_path: Path, engines: Engines) -> None:
    phases = list[str]()

    def kill(sweep: int) -> None:
        os.kill(sweep, signal.SIGSTOP)  # its runs take half a second each
        phases.extend(_phases(tmp_path))
        os.kill(sweep, signal.SIGKILL)
        os.waitid(os.P_PID, sweep, os.WEXITED | os.WNOWAIT)
        phases.extend(_phases(tmp_path))

    on_swarm = [*engines.manager.enter(), *words(tmp_path, "spread", "--on", "swarm", "--workers", "1")]
    lines = _until(on_swarm, ": starts on ", kill, -signal.SIGKILL)
    assert phases == ["running", "orphaned"]
    assert any(each.endswith("-runs") for each in everything(engines)), lines
    wait_for(lambda: everything(engines) == [] or None, "the end of everything")

    _until(on_swarm, "starting agents on ", lambda sweep: os.kill(sweep, signal.SIGINT), 130)
    wait_for(lambda: everything(engines) == [] or None, "the end of everything")  # Swarm removes its containers late
    assert len(known_runs(tmp_path / "spread" / "mine")) <= 3  # those that the killed orchestrator had begun


def _phases(tmp_path: Path) -> list[str]:
    """What `ps` says of the sweep in this folder."""
    runs = json_of("ps", "--runs", tmp_path)["runs"]
    return [each["phase"] for each in runs if each["run"].startswith("mine-")]


def _until(command: Sequence[str], said: str, act: Callable[[int], None], code: int) -> list[str]:
    """Act on the process of a command when it has said something. Returns all that it says until its end with this
    code."""
    lines = list[str]()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if said in line and not any(said in each for each in lines):
                act(running.pid)
            lines.append(line)
    assert running.returncode == code, lines
    return lines


def _is_ready(host: str) -> bool:
    with closing(Cluster.connect()) as cluster:
        return any(each.name == host and each.usable for each in cluster.members())
