"""The swarm, from answers of three Engines 20.10.24 that formed one, shortened."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.swarm import cluster
from orchestrator.drivers.swarm.cluster import Agent, Cluster, SwarmHost, latest, member, namesakes, refusal
from orchestrator.errors import HostError
from tests.fakes.swarm import FakeSwarmApi

A, B, C = "yjzijbx9hpq85996el19wb83l", "bvoxo0baj71ykl27n310in58d", "z6jsq7lgrzrq0cr33r5gtezgm"
DIRECTORY = Path("/runs/x-20260101-120000-aaaa")
RUN = DIRECTORY.name
MANAGER = {
    "NodeID": A,
    "NodeAddr": "10.77.0.1",
    "LocalNodeState": "active",
    "ControlAvailable": True,
    "Error": "",
    "RemoteManagers": [{"NodeID": A, "Addr": "10.77.0.1:2377"}],
}
NOT_JOINED = {"NodeID": "", "NodeAddr": "", "LocalNodeState": "inactive", "ControlAvailable": False, "Error": ""}


def node(name: str, id: str, number: int, **labels: str) -> dict[str, Any]:
    return {
        "ID": id,
        "Version": {"Index": 15},
        "Spec": {"Labels": labels, "Role": "worker", "Availability": "active"},
        "Description": {
            "Hostname": name,
            "Platform": {"Architecture": "x86_64", "OS": "linux"},
            "Resources": {"NanoCPUs": 2000000000, "MemoryBytes": 25276502016},
            "Engine": {"EngineVersion": "20.10.24+dfsg1", "Plugins": [{"Type": "Log", "Name": "json-file"}]},
        },
        "Status": {"State": "ready", "Addr": f"10.77.0.{number}"},
    }


def manager() -> dict[str, Any]:
    found = node("a", A, 1)
    return {
        **found,
        "Spec": {**found["Spec"], "Role": "manager"},
        "ManagerStatus": {"Leader": True, "Reachability": "reachable", "Addr": "10.77.0.1:2377"},
    }


def task(node: str, second: int, state: str, error: str = "") -> dict[str, Any]:
    status = {"State": state, "Message": "", **({"Err": error} if error else {})}
    return {"CreatedAt": f"2026-11-23T09:17:{second:02}.453295372Z", "NodeID": node, "Status": status}


@pytest.fixture
def swarm() -> FakeSwarmApi:
    return FakeSwarmApi(manager(), node("c", C, 3), node("b", B, 2, rack="2"))


@pytest.fixture
def joined(swarm: FakeSwarmApi) -> Cluster:
    return Cluster(cast(Engine, SimpleNamespace(client=SimpleNamespace(api=swarm))))


# Whether there is a swarm


def test_a_manager_is_not_refused() -> None:
    assert refusal({"Name": "a", "Swarm": MANAGER}) is None


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (NOT_JOINED, "swarm: make one of this host"),
        (None, "(`docker swarm init`)"),  # an Engine built without it
        (
            MANAGER | {"ControlAvailable": False},
            "this host, b, does not manage",
        ),
        (MANAGER | {"ControlAvailable": False}, "(`docker node promote b`)"),
        (NOT_JOINED | {"LocalNodeState": "locked"}, "(`docker swarm unlock`)"),
        (NOT_JOINED | {"LocalNodeState": "pending"}, "not yet or no longer"),
        (
            NOT_JOINED | {"LocalNodeState": "error", "Error": "certificate expired"},
            "expired: have it leave the swarm",
        ),
    ],
)
def test_a_host_that_manages_no_swarm_is_named_with_the_remedy(facts: dict[str, Any] | None, said: str) -> None:
    assert said in str(refusal({"Name": "b", "Swarm": facts}))


# Hosts


def test_a_host() -> None:
    assert member(node("b", B, 2, rack="2")) == SwarmHost(
        id=B,
        name="b",
        address="10.77.0.2",
        manager=False,
        state="ready",
        availability="active",
        architecture="amd64",
        cores=2.0,
        memory=25276502016,
        engine="20.10.24+dfsg1",
        labels={"rack": "2"},
    )


@pytest.mark.parametrize(("machine", "named"), [("aarch64", "arm64"), ("x86_64", "amd64"), ("riscv64", "riscv64")])
def test_an_architecture_has_the_name_that_images_use(machine: str, named: str) -> None:
    found = node("b", B, 2)
    found["Description"]["Platform"]["Architecture"] = machine
    assert member(found).architecture == named


@pytest.mark.parametrize(
    ("known", "address"), [("10.77.0.1:2377", "10.77.0.1"), ("[fd00::1]:2377", "fd00::1"), ("", "")]
)
def test_the_address_of_a_manager_that_does_not_know_its_own(known: str, address: str) -> None:
    found = manager()
    found["Status"]["Addr"] = "0.0.0.0"
    found["ManagerStatus"]["Addr"] = known
    assert member(found).address == address


def test_a_host_that_has_said_nothing_yet() -> None:
    found = member({**node("b", B, 2), "Description": {}, "Status": {"State": "unknown"}})
    assert (found.name, found.address, found.cores, found.usable) == (B, "", 0.0, False)


@pytest.mark.parametrize(
    ("state", "availability", "usable"),
    [("ready", "active", True), ("down", "active", False), ("ready", "drain", False), ("ready", "pause", False)],
)
def test_which_hosts_get_agents(state: str, availability: str, usable: bool) -> None:
    found = node("b", B, 2)
    found["Status"]["State"], found["Spec"]["Availability"] = state, availability
    assert member(found).usable is usable


def test_hosts_of_one_name_that_are_both_there() -> None:
    error = str(namesakes([member(node("pi", B, 2)), member(manager()), member(node("pi", C, 3))]))
    assert "name: pi (10.77.0.2, ready), pi (10.77.0.3" in error
    assert "hostnamectl set-hostname" in error


def test_a_host_that_has_joined_twice() -> None:
    gone = node("b", C, 2)
    gone["Status"]["State"] = "down"
    error = namesakes([member(gone), member(node("b", B, 2))])
    assert error is not None
    assert error.commands == (f"docker node rm --force {C}",)


def test_namesakes_are_refused(joined: Cluster, swarm: FakeSwarmApi) -> None:
    swarm.found["other"] = node("b", "other", 4)
    with pytest.raises(HostError, match="the same name: b"):
        joined.members()


# Agents


def start(joined: Cluster, **others: Any) -> None:
    joined.start_agents(
        RUN,
        DIRECTORY,
        "edgebed-host",
        ["--port", "1"],
        environment={"PORT": "1"},
        mounts={Path("/var/run/docker.sock"): Path("/engine")},
        secrets={"server": b"key"},
        **others,
    )


def test_agents_are_one_service_of_all_hosts(joined: Cluster, swarm: FakeSwarmApi) -> None:
    start(joined)
    template, container = swarm.made["template"], swarm.made["template"]["ContainerSpec"]
    assert swarm.made["mode"] == {"global": {}}
    assert swarm.made["labels"] == {"org.edgebed.run": RUN, "org.edgebed.directory": str(DIRECTORY)}
    assert template["Placement"] == {"Constraints": []}
    assert template["Networks"] == [{"Target": "host"}]
    assert template["RestartPolicy"]["Condition"] == "any"
    assert (container["Image"], container["Args"]) == ("edgebed-host", ["--port", "1"])
    assert container["User"] == "0:0"
    assert container["Mounts"] == [
        {"Target": "/engine", "Source": "/var/run/docker.sock", "Type": "bind", "ReadOnly": False}
    ]
    (secret,) = container["Secrets"]
    assert (secret["File"]["Name"], secret["File"]["Mode"], secret["SecretName"]) == ("server", 0o400, f"{RUN}-0")
    assert "Labels" not in container  # they would make it a node's container, which `down` on its host removes


def test_agents_of_some_hosts(joined: Cluster, swarm: FakeSwarmApi) -> None:
    start(joined, hosts=["c", "a"])
    assert swarm.made["template"]["Placement"] == {"Constraints": [f"node.id!={B}"]}


def test_the_longest_name_of_a_run_fits(joined: Cluster, swarm: FakeSwarmApi) -> None:
    name = f"{'x' * 40}-20260101-120000-aaaa"
    joined.start_agents(name, DIRECTORY, "i", [], environment={}, mounts={}, secrets={"a": b"", "b": b""})
    assert len(swarm.made["name"]) <= 63  # of a service: a label of the DNS (RFC 1035)
    assert max(len(each["Spec"]["Name"]) for each in swarm.secret_list) <= 64  # swarmkit, validateSecretSpec


def test_the_latest_task_of_a_host_counts() -> None:
    refused = "No such image: tiny:1"
    tasks = [
        task(A, 3, "running"),
        task(A, 1, "failed", "task: non-zero exit (3)"),
        task(B, 1, "rejected", refused),
        task(B, 2, "pending"),
        task(C, 1, "assigned"),
        task("", 4, "new"),
        task("removed", 1, "orphaned"),
    ]
    assert latest(tasks, {A: "a", B: "b", C: "c"}) == {
        "a": Agent("running", ""),
        "b": Agent("pending", refused),
        "c": Agent("assigned", ""),
        "removed": Agent("orphaned", ""),
    }


def test_a_run_with_a_secret_is_one(joined: Cluster, swarm: FakeSwarmApi) -> None:
    start(joined)
    swarm.remove_service("service")
    assert joined.runs() == {RUN: DIRECTORY}


def test_patience_with_agents_that_do_not_end(
    joined: Cluster, swarm: FakeSwarmApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "STOP_PATIENCE", 0.0)
    swarm.task_list = [task(C, 1, "running"), task(A, 1, "running")]
    assert joined.stop_agents(RUN) == ["a", "c"]


def test_a_task_that_runs_once_reports_where_it_failed(
    joined: Cluster, swarm: FakeSwarmApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "STOP_PATIENCE", 0.0)
    monkeypatch.setattr(cluster, "ONCE_PATIENCE", 0.0)
    swarm.task_list = [task(A, 1, "complete"), task(B, 1, "rejected", "No such image: i")]
    nothing: dict[str, Any] = {"environment": {}, "mounts": {}, "secrets": {}}
    assert joined.run_once(RUN, DIRECTORY, "i", ["sweep"], ["a", "b", "c"], **nothing) == {
        "b": "No such image: i",
        "c": "no end after 0 s",
    }
    assert swarm.made["template"]["RestartPolicy"]["Condition"] == "none"
    assert joined.runs() == {}
