"""What findings say of facts. The facts are written by hand, after the answers of Engines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node.messaging.wire import PROTOCOL
from orchestrator.drivers.docker.node_image import PROTOCOL_LABEL, VERSION_LABEL, describe_image, identity
from orchestrator.drivers.hosts.agents.facts import HostState
from orchestrator.drivers.swarm.cluster import SwarmHost
from orchestrator.drivers.swarm.findings import LOOK, HostFinding, Wanted, of_cut_trunk, of_facts, of_member, of_silence
from orchestrator.drivers.swarm.images import Archive, Pinned, Source
from orchestrator.errors import HostError
from orchestrator.host.kernel.clock import Clock
from orchestrator.planning.hosts.inventory import UNUSABLE
from tests.texts import containing

PC = SwarmHost("1", "pc-1", "10.0.0.1", True, "ready", "active", "amd64", 16.0, 33_500_000_000, "28.3.0", {})
PI = SwarmHost(
    *("2", "pi-1", "10.0.0.4", False, "ready", "active", "arm64", 4.0, 3_900_000_000, "27.5.1"),
    {"edgebed.hardware": "raspberry-pi-4"},
)


def source(image: dict[str, Any]) -> Archive:
    """The image of the orchestrator's Engine."""
    return Archive("sha256:1", identity(image), 920_000_000)


ENGINE: dict[str, Any] = {
    "ServerVersion": "28.3.0",
    "OSType": "linux",
    "KernelVersion": "6.12.1",
    "Architecture": "x86_64",
    "MemoryLimit": True,
    "SwapLimit": True,
    "CpuCfsQuota": True,
    "PidsLimit": True,
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=cgroupns"],
}
IMAGE: dict[str, Any] = {
    "Id": "sha256:1",
    "Size": 920_000_000,
    "Architecture": "amd64",
    "Config": {"Labels": {PROTOCOL_LABEL: str(PROTOCOL), VERSION_LABEL: "0.1.0"}},
}
FOR_PI = IMAGE | {"Architecture": "arm64"}
SOURCES: dict[str, Source] = {"amd64": source(IMAGE), "arm64": source(FOR_PI)}
WANTED = Wanted("0.1.0", "amd64", "edgebed-node", "edgebed-agent", SOURCES)
GOOD = HostState(
    version="0.1.0",
    kernel="6.12.1",
    engine=ENGINE,
    image=describe_image(IMAGE),
    disk_free=200_000_000_000,
    trunk="",
    netem="",
    iptable_raw=True,
    clock=Clock(True, 0.012),
    congestion_control="cubic",
    throttled=(),
)
ON_PI = replace(
    GOOD,
    engine=ENGINE | {"Architecture": "aarch64", "ServerVersion": "27.5.1"},
    image=describe_image(FOR_PI),
    model="Raspberry Pi 4 Model B Rev 1.4",
)


def only(found: list[HostFinding]) -> HostFinding:
    (finding,) = found
    return finding


def test_hosts_that_lack_nothing() -> None:
    assert of_facts(PC, GOOD, WANTED) == of_facts(PI, ON_PI, WANTED) == []
    assert of_member(PC) == of_member(PI) == []


def test_what_could_not_be_read_is_no_finding() -> None:
    facts = HostState(version="0.1.0", kernel="6.12.1", engine=ENGINE, image=describe_image(IMAGE))
    assert of_facts(PC, facts, WANTED) == []


def engine(**facts: Any) -> dict[str, Any]:
    return {"engine": ENGINE | facts}


@pytest.mark.parametrize(
    ("facts", "severity", "what", "remedy"),
    [
        ({"engine": None}, UNUSABLE, "its Docker Engine does not answer", "Engine's log"),
        (engine(ServerVersion="19.03.8"), UNUSABLE, "its Docker Engine is 19.03.8", "20.10 or later"),
        (engine(SecurityOptions=["name=rootless"]), UNUSABLE, "runs without root", "ordinary Engine"),
        (engine(KernelVersion="5.15.0-linuxkit"), UNUSABLE, "runs on another kernel", "own Engine"),
        (engine(MemoryLimit=False), LOOK, "memory of nodes with emulated hardware", "`cgroup_enable=memory`"),
        (engine(CpuCfsQuota=False), LOOK, "cores of nodes", "CONFIG_CFS_BANDWIDTH"),
        ({"iptable_raw": False}, LOOK, "module iptable_raw, which Docker Engine 28.3.0", "Engine 27"),
        ({"image": None}, LOOK, "no image 'edgebed-node'", "next `up` copies it (920 MB)"),
        (
            {"image": describe_image(FOR_PI)},
            LOOK,
            "has another image 'edgebed-node' than nodes",
            "the next `up` copies it",
        ),
        ({"trunk": "Operation not supported"}, UNUSABLE, "Operation not supported", "module vxlan"),
        ({"netem": "tc refused netem"}, LOOK, "tc refused netem", "load the kernel"),
        ({"congestion_control": "bbr"}, LOOK, "tcp_congestion_control bbr and not cubic", "CUBIC"),
        ({"disk_free": 1_500_000_000}, LOOK, "1.5 GB are free", "make room"),
        ({"disk_free": 300_000_000}, UNUSABLE, "300 MB are free", "make room"),
        ({"clock": Clock(False, 16.0)}, LOOK, "clock is not synchronised", "chrony"),
        ({"throttled": ("under-voltage",)}, LOOK, "at this moment: under-voltage", "power supply"),
        ({"version": "0.0.9"}, LOOK, "edgebed 0.0.9, the orchestrator of 0.1.0", "'edgebed-agent'"),
    ],
)
def test_what_a_host_lacks(facts: dict[str, Any], severity: str, what: str, remedy: str) -> None:
    found = only(of_facts(PC, replace(GOOD, **facts), WANTED))
    assert found.severity == severity
    assert what in found.what
    assert remedy in found.remedy


def test_an_engine_below_28_does_not_need_the_module() -> None:
    assert of_facts(PC, replace(GOOD, iptable_raw=False, **engine(ServerVersion="27.5.1")), WANTED) == []


def test_a_raspberry_pi_without_the_memory_control_group() -> None:
    assert ON_PI.engine is not None
    found = only(of_facts(PI, replace(ON_PI, engine={**ON_PI.engine, "MemoryLimit": False}), WANTED))
    assert "append `cgroup_enable=memory cgroup_memory=1` to the line" in found.remedy


def test_an_image_of_another_version_can_be_used() -> None:
    old = IMAGE | {"Config": {"Labels": {PROTOCOL_LABEL: str(PROTOCOL), VERSION_LABEL: "0.0.9"}}}
    for there in (source(old), NONE):
        wanted = replace(WANTED, sources={"amd64": there})
        found = only(of_facts(PC, replace(GOOD, image=describe_image(old)), wanted))
        assert (found.severity, found.what) == (
            LOOK,
            containing("edgebed-node", "version 0.0.9, the orchestrator", "0.1.0"),
        )


WHERE = "where its Docker Engine keeps images"
NONE = HostError("this host has none", "build it", ["images/build.sh arm64"])


def test_an_image_of_nodes_that_no_one_can_provide() -> None:
    wanted = replace(WANTED, sources={"arm64": NONE})
    assert of_facts(PI, ON_PI, wanted) == []
    found = only(of_facts(PI, replace(ON_PI, image=None), wanted))
    assert (found.severity, found.remedy, found.commands) == (UNUSABLE, NONE.remedy, NONE.commands)
    assert found.what == containing("has no image 'edgebed-node'", "nodes")
    speaks = IMAGE | {"Architecture": "arm64", "Config": {"Labels": {PROTOCOL_LABEL: "0"}}}
    found = only(of_facts(PI, replace(ON_PI, image=describe_image(speaks)), wanted))
    assert (found.severity, found.commands) == (UNUSABLE, NONE.commands)
    assert "speak protocol 0" in found.what


def test_an_image_of_nodes_for_which_a_host_has_no_room() -> None:
    found = of_facts(PI, replace(ON_PI, image=None, disk_free=1_800_000_000), WANTED)
    assert [(each.severity, each.what) for each in found] == [
        (UNUSABLE, f"pi-1 has 1.8 GB free {WHERE}, and loading 'edgebed-node' takes 1.84 GB"),
        (LOOK, f"1.8 GB are free {WHERE} and volumes"),
    ]


def test_an_image_of_a_registry() -> None:
    there = Pinned("registry:5000/node", "sha256:2", ("amd64",))
    wanted = replace(WANTED, image="registry:5000/node", sources={"amd64": there, "arm64": there})
    found = only(of_facts(PC, GOOD, wanted))
    assert (found.severity, found.remedy) == (
        LOOK,
        containing("nothing: the next `up`", "(registry:5000/node@sha256:2)"),
    )
    assert of_facts(PC, replace(GOOD, image=describe_image(IMAGE | {"RepoDigests": [there.reference]})), wanted) == []
    found = only(of_facts(PI, ON_PI, wanted))
    assert (found.severity, found.what) == (
        UNUSABLE,
        containing("registry:5000/node", "for amd64, and pi-1", "arm64"),
    )
    found = only(
        of_silence(PC, "No such image: registry:5000/agent", replace(wanted, agent_image="registry:5000/agent"))
    )
    assert "does it reach the registry" in found.remedy


@pytest.mark.parametrize(
    ("label", "said"), [(None, "has no label"), ("raspberry-pi-5", "has the label raspberry-pi-5")]
)
def test_a_board_that_the_swarm_does_not_know_as_what_it_is(label: str | None, said: str) -> None:
    host = replace(PI, labels={} if label is None else {"edgebed.hardware": label})
    found = only(of_facts(host, ON_PI, WANTED))
    assert found.what.startswith("it is a Raspberry Pi")
    assert found.commands == ("docker node update --label-add edgebed.hardware=raspberry-pi-4 pi-1",)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"state": "down"}, "it is down"),
        ({"availability": "drain"}, "it is to get no agent"),
        ({"address": "fd00::1"}, "it is known by fd00::1, and"),
        ({"architecture": "arm"}, "its architecture is arm"),
        ({"labels": {"edgebed.hardware": "toaster"}}, "its label edgebed.hardware: "),
    ],
)
def test_what_the_swarm_reports(changes: dict[str, Any], what: str) -> None:
    found = only(of_member(replace(PC, **changes)))
    assert found.severity == UNUSABLE
    assert found.what.startswith(what)
    assert found.remedy


def test_a_trunk_that_is_cut() -> None:
    found = of_cut_trunk(PI, "packets of 100 bytes")
    assert (found.severity, found.what) == (UNUSABLE, containing("100 bytes", "trunk to pi-1 (10.0.0.4)"))
    assert "UDP port 61147" in found.remedy


def test_an_agent_of_another_version() -> None:
    found = only(of_silence(PC, "no verb 'facts': the agent is of another version", WANTED))
    assert found.commands == ("docker save edgebed-agent:latest | ssh pc-1 docker load",)


def test_a_host_without_an_agent() -> None:
    found = only(of_silence(PC, "No such image: edgebed-agent:latest", WANTED))
    assert found.what == containing("has no image 'edgebed-agent'", "agents")
    assert found.commands == ("docker save edgebed-agent:latest | ssh pc-1 docker load",)
    found = only(of_silence(PC, "task: non-zero exit (1)", WANTED))
    assert (found.severity, found.what) == (UNUSABLE, "no agent reports it: task: non-zero exit (1)")


@pytest.mark.parametrize(("accelerators", "found"), [((), 1), (("Tesla T4",), 0)])
def test_a_label_of_an_accelerator_that_its_kernel_does_not_show(accelerators: tuple[str, ...], found: int) -> None:
    host = replace(PC, labels={"edgebed.accelerator": "cuda"})
    told = of_facts(host, replace(GOOD, accelerators=accelerators), WANTED)
    assert [each.what for each in told] == found * [
        containing("edgebed.accelerator=cuda", "kernel shows no accelerator")
    ]
