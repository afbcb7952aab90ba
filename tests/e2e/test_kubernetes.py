"""One run over two nodes of a cluster, with a fake of kubectl: its pods are containers of a Docker Engine, confined as
the manifest says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.drivers.docker.engine import Engine
from orchestrator.record.directory import known_runs
from orchestrator.results.history import History
from tests.e2e import image
from tests.e2e.engine import Place, at
from tests.e2e.harness import PACED, ROOT, THREE, Background, json_of, traces_of, up, wait_for
from tests.e2e.image import import_archive, packed, settings
from tests.fakes.kubectl import LABEL, node

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="the files of a pod belong to another user, so this needs root"),
]

NAME = f"edgebed-test-{os.getpid()}"
SPREAD = f"{THREE}probe: {{before: false}}\nhosts: {{cloud: n1, device-0: n1, device-1: n2}}\n"
"""Whether links are as configured, other tests measure with an idle host."""
PATIENCE = 180.0  # s for pods on a busy host


@pytest.fixture(scope="module")
def agent_image(place: Place) -> Iterator[str]:
    with at(place.address), closing(Engine.connect()) as engine:
        with packed(image.HOST) as archive:
            import_archive(engine.client, NAME, archive, settings())
        yield NAME
        engine.client.images.remove(NAME, force=True)


@pytest.fixture
def pods(
    engine: Engine, agent_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], list[str]]]:
    """Lists the containers that are pods, by their names. They have a network of their own, which the host reaches."""
    client = engine.client
    network = client.networks.create(NAME, internal=True)
    try:
        network.reload()
        subnet = network.attrs["IPAM"]["Config"][0]["Gateway"].rpartition(".")[0]
        nodes = [node("n1", f"{subnet}.251"), node("n2", f"{subnet}.252")]
        (tmp_path / "nodes.json").write_text(json.dumps({"items": nodes}))
        kubectl = tmp_path / "bin" / "kubectl"
        kubectl.parent.mkdir()
        kubectl.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.fakes.kubectl "$@"\n')
        kubectl.chmod(0o755)
        variables = {"FAKE_CLUSTER": str(tmp_path), "FAKE_NETWORK": NAME, "EDGEBED_AGENT_IMAGE": agent_image}
        variables |= {"PATH": f"{kubectl.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield lambda: sorted(str(each.name) for each in client.containers.list(all=True, filters={"label": LABEL}))
    finally:
        for container in client.containers.list(all=True, filters={"label": LABEL}):
            container.remove(force=True)
        network.remove()


def hosts(run: Background) -> list[str]:
    """What happened to the hosts of a run."""
    with closing(run.history()) as history:
        return [event.data["state"] for event in history.events("host")]


def test_one_run_spreads_over_the_nodes_of_a_cluster(pods: Callable[[], list[str]], tmp_path: Path) -> None:
    done = up(tmp_path, SPREAD, "--driver", "kubernetes", timeout=PATIENCE)
    assert done.code in (0, 3), done.errors  # 3: on a busy host links are late
    (run,) = known_runs(tmp_path / "runs")
    with History.open(run.path) as history:
        assert history.outcome is not None
        assert (history.outcome.ended, history.rounds_done()) == ("rounds", 3)
    checks = {each["name"]: each["verdict"] for each in done.summary["checks"]}
    assert {checks[each] for each in ("finished", "learned", "no unplanned failures")} == {"pass"}
    assert pods() == traces_of(run.run) == []
    secret = json.loads((tmp_path / "created.json").read_text())["items"][0]["stringData"]["agent"]
    assert json.loads(secret)["keys"]["secret"] not in (tmp_path / "words").read_text()


def test_an_agent_may_restart_and_those_of_a_killed_run_end_and_are_removed(
    pods: Callable[[], list[str]], tmp_path: Path
) -> None:
    with Background(tmp_path, SPREAD.replace("rounds: 3", "rounds: 999") + PACED, "--driver", "kubernetes") as killed:
        killed.wait_round(2, PATIENCE)
        run = killed.directory.run
        assert pods() == ["pod-n1", "pod-n2"]
        for word in ("kill", "start"):  # as a kubelet does with a container that has ended
            subprocess.run(["docker", word, "pod-n2"], check=True, capture_output=True)
        wait_for(lambda: hosts(killed) == ["lost", "back"] or None, "the host of the agent that restarted", PATIENCE)
        killed.process.kill()
        killed.process.wait()
        wait_for(lambda: traces_of(run) == [] or None, "the end of the agents' lease")
        (removed,) = json_of("down", run, "--runs", killed.runs)["runs"]
        assert (removed["hosts"], removed["clean"]) == (["n1", "n2"], True)
    assert pods() == []
