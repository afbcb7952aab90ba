"""Nodes wired by the kernel engine itself, in network namespaces of their own, with no node processes in them."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

from netem.kernel import tc
from netem.profile import LinkProfile
from orchestrator.fabric.base import NodeHandle
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.namespaces.wiring import ipv6_address, wires_of
from orchestrator.fabric.tc.kernel import KernelFabric
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan, channels_of
from orchestrator.scenario.reading import parse
from tests.netem.wiring import Namespace

SCENARIO = """\
name: lab
algorithm: {{name: fedavg, rounds: 1}}
topology: {{edges: 0, devices: {devices}}}
links: {{device-cloud: {link}}}
"""

T = TypeVar("T")


class Stage:
    """A cloud and so many devices, each linked with the cloud both ways. A context manager.

    Ordinary code calls the fabric's coroutines through `do`. It is a `tests.netem.wiring.Wiring`, so that
    the same traffic can be sent here as in a Lab.
    """

    def __init__(
        self,
        devices: int,
        directory: Path,
        link: str = "{}",
        tried: dict[str, Any] | None = None,
        scenario: str = SCENARIO,
    ) -> None:
        """`link`: the profile of all links. `tried`: what the tryout of another stage has found. Attaches nobody."""
        self.plan: Plan = make_plan(parse(scenario.format(devices=devices, link=link), "lab.yaml"), None)
        self.nodes: dict[str, Namespace] = {}
        self._runner = asyncio.Runner()
        self.fabric: KernelFabric = None  # type: ignore[assignment]  # until it is open
        self.hub = self.do(Hub.open("lab", directory))
        try:
            self.tried = tried or self._try_out()
            abilities = {key: self.tried[key] for key in ("seed", "duplicate_in_tree")}
            self.fabric = self.do(KernelFabric.open(self.hub, "lab", directory, wires_of(self.plan), **abilities))
            self.do(self.fabric.share(channels_of(self.plan.media)))
            self.do(self.fabric.shape(self.plan.links))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)

    def _try_out(self) -> dict[str, Any]:
        argv = [sys.executable, "-m", "orchestrator.fabric.tc.netem_support"]
        found: dict[str, Any] = json.loads(self.do(self.hub.run(argv)))
        return found

    def attach(self, name: str) -> None:
        """A new network namespace for the node, in place of the one it had."""
        if name in self.nodes:
            self.detach(name)
        self.do(self.fabric.attach(self.plan.node(name), self.start(name)))

    def start(self, name: str) -> NodeHandle:
        """A new network namespace for the node, not yet attached."""
        if name in self.nodes:
            self.nodes[name].close()
        self.nodes[name] = Namespace([*self.hub.enter(), "unshare", "-n"], user=not self.hub.privileged)
        return NodeHandle(self.nodes[name].pid)

    def detach(self, name: str) -> None:
        self.do(self.fabric.detach(self.plan.node(name)))
        self.nodes.pop(name).close()

    def profile(self, source: str, target: str) -> LinkProfile:
        return self.fabric._links[source, target].profile

    def shape(self, source: str, target: str, forward: LinkProfile, back: LinkProfile | None = None) -> None:
        """Give a link and its return these profiles; the return is unimpaired unless given."""
        self.do(self.fabric.change(source, target, forward))
        if self.profile(target, source) != (back or LinkProfile()):
            self.do(self.fabric.change(target, source, back or LinkProfile()))

    def counters(self, source: str, target: str) -> dict[str, Any]:
        rows = self.do(self.fabric.counters()).links
        return next(dict(row) for row in rows if (row["source"], row["target"]) == (source, target))

    def interface(self, name: str) -> str:
        """The hub's end of the node's data0."""
        return self.fabric._interfaces[name]

    def state(self, source: str, target: str) -> tc.KernelLinkState:
        """What the kernel shows of a link."""
        shown = self.do(self.hub.run(["tc", "-j", "-s", "qdisc", "show", "dev", self.interface(target)]))
        return tc.parse_qdiscs(shown)[self.fabric._links[source, target].index]

    def address(self, name: str) -> str:
        return self.plan.node(name).address

    def bound(self, name: str, kind: int) -> socket.socket:
        """A socket in a node's namespace, bound to a free port of its data0 address."""
        return self.nodes[name].socket(kind, (self.address(name), 0))

    def bound_to_ipv6(self, name: str, kind: int) -> socket.socket:
        """The same, bound to its IPv6 address."""
        return self.nodes[name].socket(kind, (ipv6_address(self.address(name)), 0), family=socket.AF_INET6)

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()
        if self.fabric is not None:
            self.do(self.fabric.close())
        self.do(self.hub.close())
        self._runner.close()
