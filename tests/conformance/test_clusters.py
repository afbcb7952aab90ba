"""The swarm over the fake of the Engine's API, and its fake, against the same cases. tests/swarm has real Engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.swarm.cluster import STANDING, Cluster, member
from orchestrator.drivers.swarm.standing import NAME
from orchestrator.errors import HostError
from tests.fakes.swarm import FakeCluster, FakeSwarmApi
from tests.orchestrator.drivers.swarm.test_cluster import DIRECTORY, RUN, B, C, manager, node, task

NODES = manager(), node("c", C, 3), node("b", B, 2)
NOTHING: dict[str, Any] = {"environment": {}, "mounts": {}, "secrets": {"server": b"key"}}


@dataclass
class Stage:
    """``lose``: the host b, which has an agent, does not answer any more."""

    cluster: Cluster
    lose: Callable[[], object]


def real() -> Stage:
    api = FakeSwarmApi(*({**each, "Status": dict(each["Status"])} for each in NODES))
    facts = {"Name": "a", "Swarm": {"NodeAddr": "10.77.0.1", "Cluster": {"ID": "s0"}}}

    def lose() -> None:
        api.found[B]["Status"]["State"] = "down"
        api.task_list = [task(B, 1, "running")]

    engine = SimpleNamespace(client=SimpleNamespace(api=api), facts=lambda: facts, close=lambda: None)
    return Stage(Cluster(cast(Engine, engine)), lose)


def fake() -> Stage:
    cluster = FakeCluster([replace(member(each), name=each["Description"]["Hostname"]) for each in NODES])
    return Stage(cast(Cluster, cluster), lambda: cluster.silent.append("b"))


@pytest.fixture(params=[real, fake], ids=["real", "fake"])
def stage(request: pytest.FixtureRequest) -> Stage:
    made: Stage = request.param()
    return made


def test_hosts_are_in_the_order_of_their_names(stage: Stage) -> None:
    assert [each.name for each in stage.cluster.members()] == ["a", "b", "c"]
    assert (stage.cluster.id(), all(stage.cluster.here())) == ("s0", True)


def test_a_run_is_known_until_its_agents_are_stopped(stage: Stage) -> None:
    assert (stage.cluster.runs(), stage.cluster.labels(RUN)) == ({}, None)
    stage.cluster.start_agents(RUN, DIRECTORY, "i", [], **NOTHING)
    assert stage.cluster.runs() == {RUN: DIRECTORY}
    assert stage.cluster.labels(RUN) == {"org.edgebed.run": RUN, "org.edgebed.directory": str(DIRECTORY)}
    assert stage.cluster.stop_agents(RUN) == []
    assert (stage.cluster.runs(), stage.cluster.labels(RUN)) == ({}, None)


def test_agents_that_are_left_running_are_no_run_and_a_run_that_uses_them_is(stage: Stage) -> None:
    stage.cluster.start_agents(NAME, Path("/keys"), "i", ["serve"], **NOTHING, further={STANDING: "key"})
    assert (stage.cluster.labels(NAME) or {})[STANDING] == "key"
    assert stage.cluster.runs() == {}
    stage.cluster.mark(RUN, DIRECTORY)
    assert stage.cluster.runs() == {RUN: DIRECTORY}


def test_a_host_that_is_not_there_gets_no_agent(stage: Stage) -> None:
    with pytest.raises(HostError, match="no host d, e"):
        stage.cluster.start_agents(RUN, DIRECTORY, "i", [], hosts=["a", "d", "e"], **NOTHING)
    assert stage.cluster.runs() == {}


def test_no_one_waits_for_agents_of_hosts_that_do_not_answer(stage: Stage) -> None:
    stage.cluster.start_agents(RUN, DIRECTORY, "i", [], **NOTHING)
    stage.lose()
    assert stage.cluster.stop_agents(RUN) == ["b"]
    assert stage.cluster.labels(RUN) is None
