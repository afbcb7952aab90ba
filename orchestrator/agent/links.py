"""The links of nodes on an agent's host, see `orchestrator.fabric.base.Fabric`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.drivers.swarm.plain import change_of, counted_to, link_of, node_of
from orchestrator.errors import DriverError
from orchestrator.fabric.base import Fabric, Handle, Redirects
from orchestrator.fabric.trunk import Carrier


class Links:
    """The verbs of the fabric. ``fabric`` and ``carrier`` are those of the run that is open here; a run on one host has
    no carrier."""

    def __init__(self, fabric: Callable[[], Fabric], carrier: Callable[[], Carrier | None]) -> None:
        self._fabric, self._carrier = fabric, carrier

    async def attach(self, node: Mapping[str, Any], pid: int) -> None:
        await self._fabric().attach(node_of(node), Handle(pid))

    async def detach(self, node: Mapping[str, Any]) -> None:
        await self._fabric().detach(node_of(node))

    async def redirect(self, remotes: dict[str, str]) -> None:
        """Nodes have moved: those of other hosts are now these, see `orchestrator.fabric.trunk.Trunk`."""
        fabric = self._fabric()
        if not isinstance(fabric, Redirects):
            raise DriverError(f"the {fabric.engine} engine cannot follow nodes to other hosts")
        if (carrier := self._carrier()) is not None:
            await carrier.redirect(remotes)
        await fabric.redirect(remotes)

    async def shape(self, links: Sequence[Mapping[str, Any]]) -> list[str]:
        """Returns the notes of the fabric."""
        await self._fabric().shape([link_of(each) for each in links])
        return self._fabric().notes()

    async def alter(self, changes: Sequence[Mapping[str, Any]]) -> list[str | None]:
        """Returns the error of each change, None if it succeeded."""
        found = await self._fabric().alter([change_of(each) for each in changes])
        return [None if error is None else str(error) for error in found]

    async def counters(self) -> dict[str, Any]:
        return counted_to(await self._fabric().counters())
