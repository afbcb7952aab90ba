"""Three Docker Engines on this host that form a swarm, each as if on a host of its own, and the network between them.

Each host has a network namespace, a host name and a /run of its own, and its Engine's data in memory. Other files, the
processes and the cgroups are those of this host. A switch carries the packets between the network namespaces, so that a
test can disturb them.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from docker.errors import APIError

from orchestrator.drivers.hosts.agents.channel import PROTOCOL
from orchestrator.drivers.swarm.agent_image import CHANNEL_LABEL
from tests.e2e import image
from tests.e2e.engine import Daemon, own_daemon, require_dockerd
from tests.e2e.harness import wait_for
from tests.e2e.image import import_archive, packed, settings
from tests.netem.wiring import ROOT, Lab

IMAGE, AGENT = "edgebed-test:hosts", "edgebed-test:agent"
PORT = 2377  # where a manager listens, as usual
PYTHON = str(Path(sys.executable).resolve())
SETTLE = 'hostname "$0" && mount -t tmpfs run /run && echo && exec cat'
NAMED = ("unshare", "--uts", "--mount", "--", "sh", "-c", SETTLE)
"""Makes a host of the name that follows, with a /run of its own. It lasts until the end of the input."""

USUAL = "unix:///run/docker.sock"
"""An Engine's usual socket, which only its own host sees."""


@dataclass(frozen=True)
class EngineHost:
    """``underlay`` is the host's IPv4 address there, on its interface data0. ``pid`` is a process in its namespaces.
    The address of ``daemon`` can be reached from the test."""

    name: str
    underlay: str
    pid: int
    daemon: Daemon

    @property
    def address(self) -> str:
        """For DOCKER_HOST."""
        return self.daemon.address

    def enter(self) -> list[str]:
        """The start of a command line that runs on the host, in the project's folder. There the Engine has its usual
        address."""
        return [*_enter(self.pid), "env", f"--chdir={ROOT}"]


class Underlay:
    """The network between the hosts. A link that is not shaped adds nothing. All verbs take both directions."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        for one, other in combinations(lab.names, 2):
            self.shape(one, other, {})
        for name in lab.names:
            # The kernel hands large packets of a tunnel to the switch uncut, in a form that does not tell the tunnel
            # (virtio_net_hdr_from_skb), and the receiver discards what the switch sends on.
            lab.segment_offload(name, False)

    def shape(self, a: str, b: str, profile: Mapping[str, Any]) -> None:
        """Give the link a profile in its written form, see `netem.profile`; {} undoes it."""
        self.lab.shape(a, b, profile)

    def cut(self, a: str, b: str) -> None:
        self._both("cut", a, b)

    def restore(self, a: str, b: str) -> None:
        self._both("restore", a, b)

    def _both(self, op: str, a: str, b: str) -> None:
        self.lab.ask(op, source=a, target=b)
        self.lab.ask(op, source=b, target=a)


@dataclass(frozen=True)
class Engines:
    """The hosts a, b and c, in this order. The first is the swarm's manager."""

    hosts: Sequence[EngineHost]
    underlay: Underlay

    @property
    def manager(self) -> EngineHost:
        return self.hosts[0]

    def set_label(self, host: str, key: str, value: str | None) -> None:
        """Give a host a label, or remove it. Swarm refuses a change while it changes the host itself."""
        with closing(self.manager.daemon.client()) as client:

            def change() -> bool | None:
                node = client.nodes.get(host)
                spec = node.attrs["Spec"]
                labels = {other: each for other, each in spec["Labels"].items() if other != key}
                try:
                    return bool(node.update({**spec, "Labels": labels | ({} if value is None else {key: value})}))
                except APIError as error:
                    if "update out of sequence" not in str(error):
                        raise
                    return None

            wait_for(change, f"the label of {host}")


@contextlib.contextmanager
def image_of_hosts() -> Iterator[Daemon]:
    """A stopped Engine, for any number of `three_engines`. Its images are `IMAGE`, for nodes and for what makes them
    on a host, and `AGENT`, for agents alone."""
    with own_daemon() as daemon:
        with closing(daemon.client()) as client:
            with packed(image.HOST) as archive:
                import_archive(client, IMAGE, archive, settings())
            with packed(image.AGENT) as archive:
                entrypoint = json.dumps([PYTHON, "-m", "orchestrator.agent"])
                changes = [f"ENTRYPOINT {entrypoint}", f"LABEL {CHANNEL_LABEL}={PROTOCOL}"]
                import_archive(client, AGENT, archive, [*settings(), *changes])
        daemon.stop()
        yield daemon


@contextlib.contextmanager
def three_engines(images: Daemon | None = None) -> Iterator[Engines]:
    """Three Engines in a swarm, with the images of a stopped Engine. Where none can be started the test is skipped, and
    fails in CI."""
    require_dockerd()
    with Lab(3) as lab, contextlib.ExitStack() as stack:
        lab.start_switch()
        underlay = Underlay(lab)
        pids = [stack.enter_context(_host(lab, name)) for name in lab.names]
        daemons = stack.enter_context(_daemons([_enter(pid) for pid in pids], images))
        hosts = [
            EngineHost(name, lab.address(name), pid, daemon)
            for name, pid, daemon in zip(lab.names, pids, daemons, strict=True)
        ]
        _form_swarm(*hosts)
        yield Engines(hosts, underlay)


@contextlib.contextmanager
def _host(lab: Lab, name: str) -> Iterator[int]:
    """A process in the namespaces of a host."""
    command = [*lab.nodes[name].prefix, *NAMED, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), f"the host {name} cannot be made"
        yield process.pid


def _enter(pid: int) -> list[str]:
    return ["nsenter", "--target", str(pid), "--net", "--uts", "--mount", "--"]


@contextlib.contextmanager
def _daemons(prefixes: Sequence[Sequence[str]], images: Daemon | None) -> Iterator[list[Daemon]]:
    """A dockerd for each prefix; they start and end at the same time."""
    stacks = [contextlib.ExitStack() for _ in prefixes]
    # Its threads stay: a dockerd also ends with the thread that started it (prctl(2), PR_SET_PDEATHSIG).
    with ThreadPoolExecutor(len(prefixes)) as pool:
        starts = [
            pool.submit(stack.enter_context, own_daemon(prefix, images, USUAL))
            for stack, prefix in zip(stacks, prefixes, strict=True)
        ]
        wait(starts)
        try:
            yield [start.result() for start in starts]
        finally:
            list(pool.map(contextlib.ExitStack.close, stacks))


def _form_swarm(manager: EngineHost, *others: EngineHost) -> None:
    with closing(manager.daemon.client()) as client:
        client.swarm.init(advertise_addr=manager.underlay)
        client.swarm.reload()
        token = client.swarm.attrs["JoinTokens"]["Worker"]
    for host in others:
        with closing(host.daemon.client()) as client:
            client.swarm.join([f"{manager.underlay}:{PORT}"], token, advertise_addr=host.underlay)
