"""EdgeCloud, the baseline of PHE-FL (its section IV-A3): HierFAVG with κ₂ = 1, scored as PHE-FL is, on what edges have.

GM the global model, EAM_k the model of edge k, |D_k| samples of its devices, |D| of all; ETD_k edge k's test samples
less those that PHE-FL personalises by.

    device   DM_c ← GM, then local training
    edge     EAM_k ← Σ_{c ∈ E_k} |D_c| / |D_k| DM_c
    cloud    GM ← Σ_k |D_k| / |D| EAM_k
    edge     Acc(GM, ETD_k)

What the cloud learns is what `hierfavg` learns; there, edges score their own models before the cloud averages them.

Departures: PHE-FL's, where they concern who answers. A restarted cloud or edge goes on as PHE-FL's does.
"""

from __future__ import annotations

from collections.abc import Sequence

from node.algorithms import phefl
from node.learning.aggregation import State
from node.messaging.wire import Message
from node.role import Role


class Cloud(phefl.Cloud):
    """Gives the mean of all edges' models to every edge."""

    async def aggregate(self, eams: Sequence[Message], gm: State) -> dict[str, State]:
        return dict.fromkeys(self.children, gm)


class Edge(phefl.Edge):
    """Takes the cloud's model as it is."""

    async def personalise(self, eam: State, cam: State, t: int) -> State:
        return cam


ROLES: dict[str, type[Role]] = {"cloud": Cloud, "edge": Edge, "device": phefl.Device}
