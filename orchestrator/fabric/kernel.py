"""The kernel engine: a bridge in the hub, and netem on the hub's end of every node's interface.

A link from source to target is shaped where its packets leave the hub for the target, one HTB class with a netem leaf
per source. Both directions are shaped that way, each on its own side, and neither where it is sent: there TCP's small
queues would take packets waiting in netem for packets not yet sent (tc-netem(8), LIMITATIONS).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from netem import tc
from netem.profile import LinkProfile
from orchestrator.errors import FabricError, HostError
from orchestrator.fabric import wiring
from orchestrator.fabric.base import Counted
from orchestrator.fabric.hub import Hub
from orchestrator.planning.plan import LinkPlan, NodePlan, Plan

BRIDGE = "br0"


class KernelFabric:
    """Links through netem; see Fabric for the verbs."""

    engine = "kernel"

    def __init__(self, hub: Hub, tables: Path, plan: Plan, capabilities: tc.Capabilities) -> None:
        self._hub = hub
        self._environment = {"TC_LIB_DIR": str(tables)}
        self._nodes = {node.name: node for node in plan.nodes}
        self._capabilities = capabilities
        self._links: defaultdict[str, dict[str, tc.KernelLink]] = defaultdict(dict)  # target -> source -> link
        self._cut: set[tuple[str, str]] = set()
        self._interfaces: dict[str, str] = {}
        self._single_packets = wiring.packet_truth(plan)
        self._attachments = count(1)
        self._gone: dict[tuple[str, str], dict[str, int]] = {}  # counters of interfaces that have been replaced

    @classmethod
    async def open(cls, hub: Hub, directory: Path, plan: Plan, *, seed: bool) -> KernelFabric:
        """``seed``: whether this host's netem takes one."""
        tables = directory / "tc"
        tables.mkdir()
        for name, text in tc.distribution_tables().items():
            (tables / name).write_text(text)
        await hub.run(["ip", "link", "add", BRIDGE, "type", "bridge", "mcast_snooping", "0"])
        await hub.run(["ip", "link", "set", BRIDGE, "addrgenmode", "none", "up"])
        return cls(hub, tables, plan, tc.Capabilities(seed=seed))

    def notes(self) -> list[str]:
        return [
            f"{target}: {note}"
            for target, links in self._links.items()
            for note in tc.not_applied(list(links.values()), self._capabilities)
        ]

    async def attach(self, node: NodePlan, pid: int) -> None:
        await self._retire(node.name)
        interface = wiring.hub_interface(node, next(self._attachments))
        await self._hub.run(["ip", "-batch", "-"], stdin=wiring.hub_lines(node, pid, interface, bridge=BRIDGE))
        links = list(self._links[node.name].values())
        commands = tc.setup_commands(interface, links, self._capabilities)
        await self._tc(tc.batch(commands))
        self._interfaces[node.name] = interface
        await self._read_back(node.name)
        for source, target in self._cut:
            if target == node.name:
                await self._apply_cut(source, target)
        lines = wiring.node_lines(
            node, wiring.peers(node, self._nodes.values()), single_packets=node.name in self._single_packets
        )
        await self._hub.run(["ip", "-batch", "-"], pid=pid, stdin=lines)

    async def detach(self, node: NodePlan) -> None:
        await self._retire(node.name)

    async def shape(self, links: Sequence[LinkPlan]) -> None:
        for link in links:
            source = self._nodes[link.source]
            known = self._links[link.target]
            index = known[link.source].index if link.source in known else len(known) + 1
            known[link.source] = tc.KernelLink(
                index=index, address=source.host, profile=link.profile, seed=link.seed % 2**32
            )

    async def change(self, source: str, target: str, profile: LinkProfile) -> None:
        self._links[target][source] = replace(self._links[target][source], profile=profile)
        if (source, target) not in self._cut:
            await self._apply(source, target)

    async def cut(self, source: str, target: str) -> None:
        self._cut.add((source, target))
        await self._apply_cut(source, target)

    async def restore(self, source: str, target: str) -> None:
        self._cut.discard((source, target))
        await self._apply(source, target)

    async def counters(self) -> Counted:
        rows: list[dict[str, int | str]] = []
        for target, links in self._links.items():
            states = await self._states(target) if target in self._interfaces else {}
            for source, link in links.items():
                state = states.get(link.index)
                before = self._gone.get((source, target), _NOTHING)
                now = _counts(state) if state is not None else _NOTHING
                rows.append({"source": source, "target": target, **{key: now[key] + before[key] for key in _NOTHING}})
        return Counted(links=rows)

    async def close(self) -> None:
        """Nothing to do: the bridge and the interfaces end with the hub's namespace."""

    async def _retire(self, node: str) -> None:
        """Keep what an interface has counted before it goes."""
        if node not in self._interfaces:
            return
        try:
            states = await self._states(node)
        except HostError:
            states = {}  # it went with the node's namespace
        del self._interfaces[node]
        for source, link in self._links[node].items():
            if link.index in states:
                before, now = self._gone.get((source, node), _NOTHING), _counts(states[link.index])
                self._gone[source, node] = {key: before[key] + now[key] for key in _NOTHING}

    async def _apply(self, source: str, target: str) -> None:
        if (interface := self._interfaces.get(target)) is not None:
            link = self._links[target][source]
            alone = len(self._links[target]) == 1
            await self._tc(tc.batch([tc.change_command(interface, link, self._capabilities, alone=alone)]))

    async def _apply_cut(self, source: str, target: str) -> None:
        if (interface := self._interfaces.get(target)) is not None:
            await self._tc(tc.batch([tc.cut_command(interface, self._links[target][source], self._capabilities)]))

    async def _read_back(self, target: str) -> None:
        states = await self._states(target)
        for source, link in self._links[target].items():
            if link.index not in states:
                raise FabricError(f"link {source} -> {target}: tc accepted it and the kernel does not show it")
            if differences := tc.compare(link.profile, states[link.index]):
                raise FabricError(f"link {source} -> {target}: {'; '.join(map(str, differences))}")

    async def _states(self, target: str) -> dict[int, tc.LinkState]:
        return tc.parse_qdiscs(
            await self._hub.run(["tc", "-j", "-s", "qdisc", "show", "dev", self._interfaces[target]])
        )

    async def _tc(self, lines: str) -> None:
        await self._hub.run(["tc", "-batch", "-"], stdin=lines, environment=self._environment)


_NOTHING = dict.fromkeys(("offered", "offered_bytes", "delivered", "delivered_bytes", "lost"), 0)


def _counts(state: tc.LinkState) -> dict[str, int]:
    """netem counts what left it and what it dropped; a drop is not told apart by its cause."""
    return {
        "offered": state.packets + state.dropped,
        "offered_bytes": state.sent_bytes,
        "delivered": state.packets,
        "delivered_bytes": state.sent_bytes,
        "lost": state.dropped,
    }
