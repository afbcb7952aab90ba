"""The Engines and the network that tests of several machines stand on."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.drivers.docker.helper import RIGHTS
from tests.e2e.engine import own_daemon
from tests.e2e.image import import_commands
from tests.netem.traffic import round_trips
from tests.netem.wiring import Lab, NamespacesRefusedError
from tests.swarm.engines import IMAGE, PYTHON, Engines, Underlay


@pytest.fixture
def underlay() -> Iterator[Underlay]:
    try:
        lab = Lab(3)
    except NamespacesRefusedError as refused:
        pytest.skip(str(refused))
    with lab:
        lab.start_switch()
        yield Underlay(lab)


def echoes(underlay: Underlay, source: str, target: str) -> list[float]:
    return round_trips(underlay.lab, source, target, 20)


@pytest.mark.netns
def test_what_an_underlay_does_to_packets(underlay: Underlay) -> None:
    assert echoes(underlay, "a", "b")[0] < 0.01
    underlay.shape("b", "a", {"latency": "20ms"})
    assert 0.04 <= echoes(underlay, "a", "b")[0] < 0.05
    assert echoes(underlay, "a", "c")[0] < 0.01
    underlay.cut("a", "b")
    assert echoes(underlay, "b", "a") == []
    assert len(echoes(underlay, "b", "c")) == 20
    underlay.restore("b", "a")
    underlay.shape("a", "b", {})
    assert echoes(underlay, "a", "b")[0] < 0.01


@pytest.mark.netns
def test_a_tunnel_through_an_underlay_carries_full_packets(underlay: Underlay) -> None:
    lab, sent = underlay.lab, bytes(10_000_000)
    for number, (near, far) in enumerate([("a", "b"), ("b", "a")], 1):
        setting = f"id 7 dstport 4790 local {lab.address(near)} remote {lab.address(far)} dev data0"
        lab.nodes[near].run("ip", "link", "add", "tunnel", "type", "vxlan", *setting.split())
        lab.nodes[near].run("ip", "address", "add", f"10.5.0.{number}/24", "dev", "tunnel")
        lab.nodes[near].run("ip", "link", "set", "tunnel", "up")
    with (
        lab.nodes["b"].socket(socket.SOCK_STREAM, ("10.5.0.2", 0)) as listening,
        lab.nodes["a"].socket(socket.SOCK_STREAM) as sender,
    ):
        listening.listen()
        sender.connect(listening.getsockname())
        receiver, _ = listening.accept()
        with receiver:
            sending = threading.Thread(target=sender.sendall, args=[sent])
            sending.start()
            began, received = time.monotonic(), 0
            while received < len(sent):
                received += len(receiver.recv(1 << 16))
            sending.join()
    assert time.monotonic() - began < 5.0  # s; 0.1 s on an idle host, minutes if the kernel joins packets in the tunnel


@pytest.mark.e2e
@pytest.mark.engine
def test_an_engine_that_was_killed_leaves_nothing() -> None:
    with own_daemon() as daemon, closing(daemon.client()) as client:
        import_commands(client, "edgebed-test:sleep", ["sleep"])
        container = client.containers.run("edgebed-test:sleep", ["sleep", "1000"], detach=True, stop_signal="KILL")
        container.reload()
        process = Path("/proc", str(container.attrs["State"]["Pid"]))
        daemon.kill()
        assert process.exists()
    assert not process.exists()
    assert not daemon.folder.exists()


@pytest.mark.e2e
@pytest.mark.engine
@pytest.mark.slow
def test_the_image_makes_a_run_on_a_host(engines: Engines) -> None:
    """Python with the driver and the fabric, and the commands that make links, in the network of the host."""
    host, other = engines.hosts[1], engines.hosts[2]
    with closing(host.daemon.client()) as client:

        def run(*command: str) -> str:
            return client.containers.run(
                *(IMAGE, list(command[1:])),
                entrypoint=list(command[:1]),
                user="0:0",
                network_mode="host",
                pid_mode="host",
                cap_add=list(RIGHTS),
                remove=True,
            ).decode()

        modules = "orchestrator.drivers.docker.driver, orchestrator.fabric.userspace, orchestrator.fabric.tc.kernel"
        version = "import importlib.metadata; print(importlib.metadata.version('edgebed'))"
        assert run(PYTHON, "-c", f"import {modules}; {version}")
        assert host.underlay in run("ip", "address")
        assert "data0" not in run("unshare", "--net", "ip", "link")
        assert other.underlay in run("nsenter", "--target", str(other.pid), "--net", "ip", "address")
        assert "data0" in run("tc", "qdisc")
        run("bridge", "link")
        assert f"HOSTNAME={host.name}" in run("env")
        assert client.containers.list(all=True) == []
    printed = subprocess.run([*host.enter(), "uname", "-n"], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == host.name != os.uname().nodename
