"""EdgeCloud, the baseline of PHE-FL (its section IV-A3): HierFAVG with κ₂ = 1, scored as PHE-FL on edges' test samples.

GM the global model, EAM_k the model of edge k, |D_k| samples of its devices, |D| of all; ETD_k edge k's test samples
without those that PHE-FL uses for personalisation.

    device   DM_c ← GM, then local training
    edge     EAM_k ← Σ_{c ∈ E_k} |D_c| / |D_k| DM_c
    cloud    GM ← Σ_k |D_k| / |D| EAM_k
    edge     Acc(GM, ETD_k)

The cloud learns the same model as in `hierfavg`. There, edges score their own models before the cloud averages them.

Departures: those of PHE-FL for missing answers. A restarted cloud or edge continues as in PHE-FL.
"""

from __future__ import annotations

from collections.abc import Sequence

from node.algorithms import phefl
from node.learning.aggregation import State
from node.messaging.wire import Message
from node.role import Role


class Cloud(phefl.Cloud):
    """Sends the mean of all edges' models to every edge."""

    async def aggregate(self, eams: Sequence[Message], gm: State) -> dict[str, State]:
        return dict.fromkeys(self.children, gm)


class Edge(phefl.Edge):
    """Uses the cloud's model unchanged."""

    async def personalise(self, eam: State, cam: State, t: int) -> State:
        return cam


ROLES: dict[str, type[Role]] = {
    "cloud": Cloud,
    "edge": Edge,
    "device": phefl.Device,
}
