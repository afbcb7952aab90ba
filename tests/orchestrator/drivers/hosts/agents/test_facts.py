from __future__ import annotations

import msgpack
import pytest

from node.errors import WireError
from orchestrator.drivers.docker.node_image import describe_image
from orchestrator.drivers.hosts.agents.calls import from_plain, plain
from orchestrator.drivers.hosts.agents.facts import HostState, of_engine
from orchestrator.host.kernel.clock import Clock

INFO = {"ServerVersion": "28.3.0", "MemoryLimit": True, "Runtimes": {"runc": {}, "nvidia": {}}, "Name": "pc-1"}
IMAGE = {"Architecture": "amd64", "Config": {"Env": ["SECRET=1"], "Labels": {"a": "b"}}, "Size": 7}


def test_facts_pass_the_channel() -> None:
    facts = HostState(
        version="1",
        kernel="6.1.0",
        engine=of_engine(INFO),
        image=describe_image(IMAGE),
        trunk="",
        clock=Clock(True, 0.012),
        accelerators=("NVIDIA H100 80GB HBM3",),
        throttled=("under-voltage",),
    )
    assert from_plain(HostState, msgpack.unpackb(msgpack.packb(facts, default=plain))) == facts


def test_messages_about_the_engine() -> None:
    told = of_engine(INFO)
    assert (told["ServerVersion"], told["MemoryLimit"], told["CpuCfsQuota"]) == ("28.3.0", True, None)
    assert told["Runtimes"] == ["nvidia", "runc"]
    assert "Name" not in told


def test_an_agent_of_another_version() -> None:
    assert from_plain(HostState, {"version": "1", "kernel": "6", "new": 1}).disk_free is None
    with pytest.raises(WireError, match=r"^kernel: Field required$"):
        from_plain(HostState, {"version": "1"})
