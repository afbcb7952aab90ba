from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.hosts.agents.facts import HostState, KeptData
from orchestrator.drivers.swarm.cluster import Cluster, SwarmHost
from orchestrator.drivers.swarm.examination import Examination
from orchestrator.drivers.swarm.hosting import hosts_doctor
from orchestrator.drivers.swarm.hosting.hosts_doctor import examine_swarm
from orchestrator.host.kernel.clock import Clock
from orchestrator.host.process import signals
from orchestrator.planning.hosts.inventory import Inventory, Underlay
from tests.fakes.docker import FakeEngine
from tests.fakes.swarm import FakeCluster
from tests.orchestrator.drivers.swarm.test_findings import FOR_PI, GOOD, IMAGE, ON_PI, PC, PI
from tests.texts import containing

PC_2 = replace(PC, name="pc-2", address="10.0.0.2", manager=False)
GONE = replace(PC, name="pc-3", address="10.0.0.3", manager=False, state="down")


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Has the swarm consist of these hosts, and the examination find this. Returns the hosts that are asked."""

    def played(members: Sequence[SwarmHost], found: Examination | None = None) -> list[str]:
        asked: list[str] = []

        async def examine(cluster: Any, hosts: Sequence[SwarmHost], *_: Any) -> Examination:
            asked.extend(each.name for each in hosts)
            if found is None:
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.Event().wait()
            assert found is not None
            return found

        monkeypatch.setattr(Cluster, "connect", lambda: FakeCluster(members))
        engine = FakeEngine(**{"edgebed-node": IMAGE, "edgebed-node:arm64": FOR_PI})
        monkeypatch.setattr(Engine, "connect", lambda: engine)
        monkeypatch.setattr(hosts_doctor, "examine", examine)
        monkeypatch.setattr("importlib.metadata.version", lambda name: "0.1.0")
        return asked

    return played


def doctor(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["hosts", "doctor", *arguments])


THERE, BACK = Underlay(0.0002, 9.4e8, 1500), Underlay(0.0002, None, 1500)
WELL = Examination({"pc-1": GOOD, "pi-1": ON_PI}, {}, {("pc-1", "pi-1"): THERE, ("pi-1", "pc-1"): BACK})


def test_hosts_that_lack_nothing(play: Callable[..., list[str]]) -> None:
    kept = KeptData("digits", "0" * 64, 130_000), KeptData("cifar10", "1" * 64, 185_000_000)
    cards = replace(GOOD, accelerators=("Tesla T4", "Tesla T4"), datasets=kept)
    assert play([PC, PI], replace_facts(WELL, {"pc-1": cards})) == []
    result = doctor()
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert (
        lines[2]
        == "pc-1 28.3.0 6.12.1 – 200 GB digits (130 kB), cifar10 (185 MB) works within 12 ms cubic – 2 × Tesla T4"
    )
    assert "pc-1, pi-1: ready for runs" in lines
    assert lines[-1] == "pc-1 pi-1 0.2 ms 940 mbit – 1500"


def test_json_is_an_inventory_with_what_was_found(play: Callable[..., list[str]]) -> None:
    late = replace(GOOD, clock=Clock(False, 16.0))
    play([PC, PI], replace_facts(WELL, {"pc-1": late}))
    result = doctor("--json")
    assert result.exit_code == 0  # nothing keeps runs away
    told = json.loads(result.stdout)
    first, second = told["hosts"]
    assert (first["name"], first["cores"], first["facts"]["kernel"]) == ("pc-1", 16.0, "6.12.1")
    (finding,) = first["findings"]
    assert (finding["severity"], finding["commands"]) == ("look", ["timedatectl set-ntp true"])
    assert second["findings"] == []
    inventory = Inventory.from_json(told)
    assert [each.name for each in inventory.hosts] == ["pc-1", "pi-1"]
    assert inventory.underlay == {("pc-1", "pi-1"): THERE, ("pi-1", "pc-1"): BACK}


def test_runs_that_kept_the_rates_from_being_measured_are_named(play: Callable[..., list[str]]) -> None:
    play([PC, PI], replace(WELL, busy=("mine-1",)))
    assert doctor().stdout.splitlines()[-1] == containing("rates", "has 1 run (mine-1)")


def replace_facts(found: Examination, facts: dict[str, HostState]) -> Examination:
    return replace(found, facts=found.facts | facts)


def test_hosts_that_runs_cannot_use(play: Callable[..., list[str]]) -> None:
    asked = play(
        [PC, PC_2, GONE, PI],
        Examination(
            {"pc-1": replace(GOOD, congestion_control="bbr", trunk="not supported"), "pi-1": ON_PI},
            {"pc-2": "No such image: edgebed-agent:latest"},
            {},
            {("pc-1", "pi-1"): "no packet of pc-1 comes back"},
            {("pc-1", "pi-1"): "packets of 100 bytes"},
        ),
    )
    result = doctor()
    assert (result.exit_code, asked) == (1, ["pc-1", "pc-2", "pi-1"])
    lines = [line.strip() for line in result.stdout.splitlines()]
    start = lines.index("pc-1: cannot be used by runs")
    assert lines[start + 1].split() == ["no", "not", "supported"]
    assert "docker save edgebed-agent:latest | ssh pc-2 docker load" in lines
    assert "no    it is down" in lines
    assert containing("no ", "pi-1 (10.0.0.4): no packet of pc-1") in lines
    assert containing("no ", "pc-1 (10.0.0.1): no packet of pc-1") in lines
    assert containing("no ", "100 bytes", "trunk to pc-1 (10.0.0.1)") in lines
    refused = next(line for line in lines if "tcp_congestion_control bbr and not cubic" in line)
    assert lines.index(refused) > start + 1


def test_some_hosts(play: Callable[..., list[str]]) -> None:
    asked = play([PC, PI], Examination({"pi-1": ON_PI}))
    result = doctor("pi-1", "--json")
    assert (asked, [each["name"] for each in json.loads(result.stdout)["hosts"]]) == (["pi-1"], ["pi-1"])


def test_a_host_that_is_not_there_is_bad_usage(play: Callable[..., list[str]]) -> None:
    asked = play([PC, PI], WELL)
    result = doctor("pc-1", "pc-9")
    assert (result.exit_code, asked) == (2, [])
    assert "the swarm has no host pc-9" in result.output
    assert CliRunner().invoke(cli, ["hosts", "--json", "doctor"]).exit_code == 2


def test_a_signal_ends_the_question_in_order(play: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_asked", False)
    asked = play([PC])
    with pytest.raises(KeyboardInterrupt):
        examine_swarm([], lambda said: None)
    assert asked == ["pc-1"]
