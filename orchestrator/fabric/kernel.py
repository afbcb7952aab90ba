"""The kernel engine: a bridge in the hub, and netem on the hub's end of every node's interface.

A link from source to target is shaped where its packets leave the hub for the target, one HTB class with a netem leaf
per source. Both directions are shaped that way, each on its own side, and neither where it is sent: there TCP's small
queues would take packets waiting in netem for packets not yet sent (tc-netem(8), LIMITATIONS).

The bridge is told who is where instead of learning it. A learning bridge sends what is for a silent or absent node to
everybody, and such packets would take the rate and the buffer of links they do not belong to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from netem import tc
from netem.profile import LinkProfile
from netem.tables import distribution_tables
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
        self._gone: dict[tuple[str, str], dict[str, int]] = {}  # counters of qdiscs that are no more

    @classmethod
    async def open(
        cls, hub: Hub, directory: Path, plan: Plan, *, seed: bool, duplicate_in_tree: bool = False
    ) -> KernelFabric:
        """``seed``, ``duplicate_in_tree``: what this host's netem can do, see `tc.Capabilities` and `tryout`."""
        tables = directory / "tc"
        tables.mkdir()
        for name, text in distribution_tables().items():
            (tables / name).write_text(text)
        await hub.run(["ip", "link", "add", BRIDGE, "type", "bridge", "mcast_snooping", "0"])
        await hub.run(["ip", "link", "set", BRIDGE, "addrgenmode", "none", "up"])
        return cls(hub, tables, plan, tc.Capabilities(seed=seed, duplicate_in_tree=duplicate_in_tree))

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
        await self._hub.run(["bridge", "-batch", "-"], stdin=_bridge_lines(node, interface))
        links = self._links[node.name]
        commands = tc.setup_commands(interface, list(links.values()), self._capabilities)
        shown = await self._tc([*commands, tc.show_command(interface)])
        self._interfaces[node.name] = interface
        self._check(node.name, links, shown)
        for source, target in self._cut:
            if target == node.name:
                await self._close(source, target)
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
        link = self._renew(source, target, profile)
        if (source, target) not in self._cut and (interface := self._interfaces.get(target)) is not None:
            command = tc.change_command(interface, link, self._capabilities, alone=self._alone(target))
            self._check(target, {source: link}, await self._tc([command, tc.show_command(interface)]))

    async def cut(self, source: str, target: str) -> None:
        if (source, target) not in self._cut:
            self._cut.add((source, target))
            await self._close(source, target)

    async def restore(self, source: str, target: str) -> None:
        if (source, target) not in self._cut:
            return
        self._cut.discard((source, target))
        link = self._renew(source, target, self._links[target][source].profile)
        if (interface := self._interfaces.get(target)) is not None:
            commands = tc.restore_commands(interface, link, self._capabilities, alone=self._alone(target))
            shown = await self._tc(commands)
            self._keep(source, target, _cut_off(tc.parse_cuts(shown)[link.index]))

    async def counters(self) -> Counted:
        rows: list[dict[str, int | str]] = []
        for target, links in self._links.items():
            now = await self._read(target)
            for source, link in links.items():
                row = _sum(self._gone.get((source, target), {}), now.get(link.index, {}))
                rows.append({"source": source, "target": target, **row})
        return Counted(links=rows)

    async def close(self) -> None:
        """Nothing to do: the bridge and the interfaces end with the hub's namespace."""

    async def _close(self, source: str, target: str) -> None:
        if (interface := self._interfaces.get(target)) is not None:
            link = self._links[target][source]
            state = tc.parse_qdiscs(await self._tc(tc.cut_commands(interface, link)))[link.index]
            self._keep(source, target, {**_counts(state), "cut_dropped": state.backlog_packets})

    async def _retire(self, node: str) -> None:
        """Keep what an interface has counted before it goes."""
        try:
            now = await self._read(node)
        except HostError:
            now = {}  # it went with the node's namespace
        self._interfaces.pop(node, None)
        for source, link in self._links[node].items():
            self._keep(source, node, now.get(link.index, {}))

    async def _read(self, target: str) -> dict[int, dict[str, int]]:
        """What the qdiscs of an interface have counted, by the index of the link."""
        if target not in self._interfaces:
            return {}
        shown = await self._tc([tc.show_command(self._interfaces[target])])
        counted = {index: _counts(state) for index, state in tc.parse_qdiscs(shown).items()}
        return counted | {index: _cut_off(packets) for index, packets in tc.parse_cuts(shown).items()}

    def _keep(self, source: str, target: str, counted: Mapping[str, int]) -> None:
        self._gone[source, target] = _sum(self._gone.get((source, target), {}), counted)

    def _renew(self, source: str, target: str, profile: LinkProfile) -> tc.KernelLink:
        old = self._links[target][source]
        self._links[target][source] = replace(old, profile=profile, seed=tc.next_seed(old.seed))
        return self._links[target][source]

    def _alone(self, target: str) -> bool:
        return len(self._links[target]) == 1

    def _check(self, target: str, links: Mapping[str, tc.KernelLink], shown: str) -> None:
        """Hold what the kernel shows against what was asked of it."""
        states = tc.parse_qdiscs(shown)
        for source, link in links.items():
            if link.index not in states:
                raise FabricError(f"link {source} -> {target}: tc accepted it and the kernel does not show it")
            asked = tc.applied(link.profile, self._capabilities, alone=self._alone(target))
            if differences := tc.compare(asked, states[link.index]):
                raise FabricError(f"link {source} -> {target}: {'; '.join(map(str, differences))}")

    async def _tc(self, commands: Iterable[Sequence[str]]) -> str:
        """Run commands one after the other in one process; what those that show something have printed, as JSON."""
        argv = ["tc", "-json", "-statistics", "-batch", "-"]
        return await self._hub.run(argv, stdin=tc.batch(commands), environment=self._environment)


_COUNTERS = ("offered", "offered_bytes", "delivered", "delivered_bytes", "lost", "cut_dropped")


def _bridge_lines(node: NodePlan, interface: str) -> str:
    quiet = "flood off mcast_flood off bcast_flood off learning off"
    return f"link set dev {interface} {quiet}\nfdb replace {node.mac} dev {interface} master static\n"


def _counts(state: tc.LinkState) -> dict[str, int]:
    """netem counts what left it, what it holds and what it dropped; a drop is not told apart by its cause."""
    return {
        "offered": state.packets + state.dropped + state.backlog_packets,
        "offered_bytes": state.sent_bytes + state.backlog,
        "delivered": state.packets,
        "delivered_bytes": state.sent_bytes,
        "lost": state.dropped,
    }


def _cut_off(packets: int) -> dict[str, int]:
    return {"offered": packets, "cut_dropped": packets}


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in _COUNTERS}
