"""A link engine that only remembers, for tests of what uses one. `tests.conformance` shows that it acts as others."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from netem.media.profile import ChannelProfile, Crossing, CrossTraffic
from netem.profile import LinkProfile
from orchestrator.errors import FabricError
from orchestrator.fabric.base import Counted, LinkChange, LinkRow, NodeHandle
from orchestrator.fabric.coalesce import Coalescing
from orchestrator.planning.plan import LinkPlan, NodePlan
from orchestrator.scenario.sections.topology import Ends


class FakeFabric(Coalescing):
    """See `Fabric`, `SharesMedia` and `ChangesAddresses` of `orchestrator.fabric.base`.

    attached, links, cut_links   nodes, profiles and cut links
    crossings                    each link's way through channels
    channels, occupied           channels, and those with cross traffic: it and its seed
    counted, figures             counters of links, and the other fields of `Counted`, as a test sets them
    addresses                    of nodes that have got another one
    refuse_node                  called before a node is attached; may raise
    refuse                       returns why a change is refused, or None
    failed                       a test sets the error of a part that fails
    """

    engine = "fake"

    def __init__(self) -> None:
        super().__init__(self.alter)
        self.tcp: Mapping[str, str] = {"tcp_congestion_control": "cubic"}
        self.attached: dict[str, NodeHandle] = {}
        self.links: dict[Ends, LinkProfile] = {}
        self.cut_links: set[Ends] = set()
        self.crossings: dict[Ends, tuple[Crossing, ...]] = {}
        self.channels: dict[str, ChannelProfile] = {}
        self.occupied: dict[str, tuple[CrossTraffic, int]] = {}
        self.counted: dict[Ends, dict[str, int]] = defaultdict(dict)
        self.figures: dict[str, Any] = {}
        self.addresses: dict[str, str] = {}
        self.remotes: Mapping[str, str] | None = None  # since nodes have moved
        self.refuse_node: Callable[[str], None] = lambda node: None
        self.refuse: Callable[[LinkChange], str | None] = lambda change: None
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def notes(self) -> list[str]:
        return []

    async def attach(self, node: NodePlan, handle: NodeHandle) -> dict[str, str]:
        self.refuse_node(node.name)
        self.attached[node.name] = handle
        return {name: self.tcp.get(name, value) for name, value in node.stack.items()}

    async def readdress(self, node: NodePlan, handle: NodeHandle, peers: Mapping[str, NodeHandle]) -> None:
        assert self.attached[node.name] == handle
        self.addresses[node.name] = node.address

    async def detach(self, node: NodePlan) -> None:
        self.attached.pop(node.name, None)

    async def shape(self, links: Sequence[LinkPlan]) -> None:
        self.links |= {(link.source, link.target): link.profile for link in links}
        self.crossings |= {(link.source, link.target): link.crossings for link in links}

    async def share(self, channels: Mapping[str, ChannelProfile]) -> None:
        self.channels |= channels

    async def occupy(self, channel: str, traffic: CrossTraffic | None, seed: int = 0) -> None:
        self.occupied.pop(channel, None)
        if traffic is not None:
            self.occupied[channel] = traffic, seed

    async def alter(self, changes: Sequence[LinkChange]) -> list[Exception | None]:
        return [self._make(change) for change in changes]

    def _make(self, change: LinkChange) -> Exception | None:
        ends = change.source, change.target
        if (reason := self.refuse(change)) is not None:
            return FabricError(f"link {change.source} -> {change.target}: {reason}")
        if change.crossings is not None:
            self.crossings[ends] = change.crossings
        elif change.profile is not None:
            self.links[ends] = change.profile
        elif change.cut:
            self.cut_links.add(ends)
        else:
            self.cut_links.discard(ends)
        return None

    async def counters(self) -> Counted:
        rows: list[LinkRow] = [{"source": ends[0], "target": ends[1], **row} for ends, row in self.counted.items()]
        return Counted(links=rows, **self.figures)

    async def redirect(self, remotes: Mapping[str, str]) -> None:
        self.remotes = remotes

    async def watch(self) -> None:
        await self.failed

    async def close(self) -> None:
        """As a switch does: it ends, and `watch` notices."""
        if not self.failed.done():
            self.failed.set_exception(FabricError("the switch ended"))
            self.failed.exception()  # retrieved, if nothing watches
        await asyncio.sleep(0)
