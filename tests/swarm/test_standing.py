"""Agents that are left running between runs, and the data sets that hosts keep."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.drivers.swarm.agent_task import VOLUME
from orchestrator.drivers.swarm.standing import NAME
from orchestrator.host.hashes import is_hash
from tests.e2e.harness import ROOT, Background, command, json_of, wait_for
from tests.e2e.test_docker import assert_same_tcp
from tests.e2e.test_parity import figures
from tests.swarm.engines import EngineHost, Engines
from tests.swarm.test_run import FIVE, LONG

pytestmark = pytest.mark.e2e


@pytest.fixture(autouse=True)
def settings(on_engines: None, engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    if anything(engines):  # of a test that failed
        subprocess.run(command("hosts", "down", "--data"), cwd=ROOT, check=False)


def on_manager(engines: Engines, *arguments: str, code: int = 0) -> Any:
    done = subprocess.run(
        [*engines.manager.enter(), *command(*arguments, "--json")], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


def of(host: EngineHost) -> list[str]:
    """The containers and volumes of a host. Those of an agent's task are left out, which are Swarm's."""
    with closing(host.daemon.client()) as client:
        containers = [str(each.name) for each in client.containers.list(all=True, ignore_removed=True)]
        volumes = [each.name for each in client.volumes.list()]
    return sorted([*(each for each in containers if "." not in each), *volumes])


def services(engines: Engines) -> list[str]:
    with closing(engines.manager.daemon.client()) as client:
        return sorted(each.name for kind in (client.services, client.secrets) for each in kind.list())


def anything(engines: Engines) -> list[str]:
    return [*services(engines), *(name for host in engines.hosts for name in of(host))]


def wait_until(engines: Engines, names: Sequence[str]) -> None:
    """Until each host has these containers and volumes."""
    wait_for(lambda: all(of(host) == sorted(names) for host in engines.hosts) or None, f"only {names} on each host")


def kept(host: EngineHost) -> list[Path]:
    return [path for path in (host.daemon.data / "volumes" / VOLUME / "_data").iterdir() if is_hash(path.name)]


def test_they_serve_one_run_after_the_other_and_keep_its_data(tmp_path: Path, engines: Engines) -> None:
    manager = tuple(engines.manager.enter())
    assert on_manager(engines, "hosts", "up") == {"hosts": ["a", "b", "c"], "refused": {}}
    assert json_of("hosts")["agents"] == dict.fromkeys("abc", "running")
    waiting = [NAME, f"{NAME}-agent", VOLUME]
    (keys,) = (tmp_path / "state").rglob("*.json")
    assert keys.stat().st_mode & 0o777 == 0o600

    unprobed = FIVE.replace("probe: {before: false}\n", "")  # as `figures` writes it
    simulated = figures(tmp_path, "sim", unprobed.split("driver:")[0])
    assert figures(tmp_path, "swarm", unprobed, manager) == simulated
    assert_same_tcp(max((tmp_path / "runs").iterdir(), key=lambda path: path.stat().st_mtime))
    assert services(engines) == [NAME, f"{NAME}-0"]
    (first,) = kept(engines.hosts[1])
    wait_until(engines, waiting)

    (tmp_path / "killed").mkdir()
    with Background(tmp_path / "killed", LONG, prefix=manager) as run:
        run.wait_round(1, timeout=200)
        name = run.directory.run
        assert f"{name}-agent" in of(engines.hosts[1])
        assert name in services(engines)  # the swarm knows of it
        refused = on_manager(engines, "hosts", "down", code=1)
        assert f"in use ({name})" in refused
        assert [each.stat().st_ino for each in kept(engines.hosts[1])] == [first.stat().st_ino]  # not brought again
        os.kill(run.process.pid, signal.SIGKILL)
        said = json_of("down", name, "--runs", run.runs)["runs"][0]
        assert said["clean"], said
        assert name not in str(anything(engines))
        wait_until(engines, waiting)

    ended = json_of("hosts", "down", "--data")
    assert ended == {"agents": True, "data": True, "left": {}}
    assert not keys.exists()
    wait_for(lambda: anything(engines) == [] or None, "the end of everything")
