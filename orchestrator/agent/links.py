"""The links of nodes on an agent's host, see `orchestrator.fabric.base.Fabric`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import DriverError
from orchestrator.fabric.base import Fabric, LinkChange, Redirects
from orchestrator.fabric.trunk import Carrier
from orchestrator.planning.plan import LinkPlan


@dataclass(frozen=True)
class Links:
    """The calls whose results cannot travel, or in which the carrier takes part. A run on one host has no carrier."""

    fabric: Fabric
    carrier: Carrier | None

    async def redirect(self, remotes: Mapping[str, str]) -> None:
        """Nodes have moved: those of other hosts are now these, see `orchestrator.fabric.trunk.Trunk`."""
        if not isinstance(self.fabric, Redirects):
            raise DriverError(f"the {self.fabric.engine} engine cannot follow nodes to other hosts")
        if self.carrier is not None:
            await self.carrier.redirect(remotes)
        await self.fabric.redirect(remotes)

    async def shape(self, links: Sequence[LinkPlan]) -> list[str]:
        """Returns the notes of the fabric."""
        await self.fabric.shape(links)
        return self.fabric.notes()

    async def alter(self, changes: Sequence[LinkChange]) -> list[str | None]:
        """Returns the error of each change, None if it succeeded."""
        return [None if error is None else str(error) for error in await self.fabric.alter(changes)]
