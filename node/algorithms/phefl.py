"""PHE-FL. S. Lee, O. Tavallaie, S. Chen, K. Thilakarathna, S. Seneviratne, A. N. Toosi, A. Y. Zomaya, "Personalizing
Federated Learning for Hierarchical Edge Networks with Non-IID Data", Algorithms 1 to 3 and equations 6 to 9.

K edges, E_k devices of edge k, DM_c device model, EAM_k edge-aggregated model, CAM_k cloud-aggregated model for edge k,
PEAM_k personalised model, |D_c|, |D_k| samples of a device, of an edge; PTD_k and ETD_k parts of edge k's test set for
personalisation and for scores.

    device   DM_c ← PEAM_k, then local training
    edge     EAM_k ← Σ_{c ∈ E_k} |D_c| / |D_k| DM_c
    cloud    CAM_e ← Σ_{k ≠ e} |D_k| / (|D| − |D_e|) EAM_k                                                        (6, 7)
    edge     α_k ← Acc(EAM_k, PTD_k) / (Acc(EAM_k, PTD_k) + Acc(CAM_k, PTD_k))                                      (8)
             PEAM_k ← α_k EAM_k + (1 − α_k) CAM_k                                                                   (9)

α = 1 is OnlyEdge while every edge has a model; α = 1/K with edges of equal size is EdgeCloud up to rounding. Both with
the same local training.

Departures: α is 1/2 if both models have accuracy 0. |D_k| counts the devices that answered, CAM the edges that
answered. If no other edge answered, an edge keeps its own model (α = 1). An edge without a model starts from the
cloud's. An edge that missed a round takes part again with its last model, and α weights that model by its accuracy.
Round t + 1 starts with the CAM of round t: edges then make and score PEAM^t. κ₂ edge rounds make a round (figure 4c; 1
in Algorithm 3). The cloud scores the mean of all EAM on the global test set, but does not send it.
"""

from __future__ import annotations

from collections.abc import Sequence

from node.algorithms import hierfavg
from node.algorithms.common import average, evaluate, evaluated, fitting, joined, parted, round_of, with_samples
from node.learning.aggregation import State, weighted_mean
from node.messaging.wire import Message
from node.role import Role


def cloud_model(e: str, updates: Sequence[Message]) -> State:
    """CAM_e, equations 6 and 7: the mean of all edges' models except that of edge `e`. Empty if there is no other."""
    states = []
    samples = []
    for update in updates:
        if update.sender != e:
            states.append(update.tensors)
            samples.append(update.fields["samples"])
    if not states:
        return {}
    return weighted_mean(states, samples)


def personal_weight(accuracy_eam: float, accuracy_cam: float) -> float:
    """α_k, equation 8; 1/2 if both are 0."""
    total = accuracy_eam + accuracy_cam
    if total > 0:
        return accuracy_eam / total
    return 0.5


def personal_model(alpha: float, eam: State, cam: State) -> State:
    """PEAM_k, equation 9."""
    return weighted_mean([eam, cam], [alpha, 1 - alpha])


class Cloud(Role):
    """Makes a model for each edge from the models of the other edges (Algorithm 1)."""

    async def run(self) -> None:
        t = 0
        initial = self.learner.initial()
        cams = dict.fromkeys(self.children, initial)
        if self.restored:
            t = self.restored.round
            for e in self.children:
                cams[e] = parted(self.restored.tensors, e)
        async for t in self.rounds():
            await self.publish_each("model", cams, owned=True, round=t, last=False)
            updates = await self.gather("update", self.children, round=t)
            fit = fitting(self, updates, initial)
            eams = with_samples(self, fit)
            if eams:
                gm = await average(self, eams, initial)
                cams = await self.aggregate(eams, gm)
                await evaluate(self, gm, t)
            await self.checkpoint(t, joined(**cams))
        await self.publish_each(
            "model",
            cams,
            owned=True,
            round=t + 1,
            last=True,
        )
        await self.gather("scored", self.children, round=t + 1)

    async def aggregate(self, eams: Sequence[Message], gm: State) -> dict[str, State]:
        """CAM_e for every edge e; `gm` is the mean of all."""
        cams = {}
        for e in self.children:
            cams[e] = await self.compute(cloud_model, e, eams, mode="other")
        return cams


class Edge(hierfavg.Edge):
    """Averages its devices and mixes the result with the cloud's model for it (Algorithm 2)."""

    async def run(self) -> None:
        eam: State = {}
        trained = 0
        samples = 0
        if self.restored:
            eam = self.restored.tensors
            trained = self.restored.round
            samples = self.restored.fields["samples"]
        while True:
            model = await self.receive("model", sender=self.parent)
            t = round_of(model)
            if t > trained:
                peam = await self.personalise(eam, model.tensors, t - 1)
                if not peam:
                    peam = self.learner.initial()
                if t > 1:
                    await evaluate(self, peam, t - 1)
                if model.fields["last"]:
                    await self.send(self.parent, "scored", round=t)
                    continue
                eam, samples = await self.aggregate(peam, t)
                trained = t
                await self.checkpoint(t, eam, samples=samples)
            update = eam if samples else None
            await self.send(
                self.parent,
                "update",
                update,
                owned=True,
                round=t,
                samples=samples,
            )

    async def personalise(self, eam: State, cam: State, t: int) -> State:
        """PEAM_k of round t. If one of the two models is missing, the other one."""
        if not eam or not cam:
            return eam or cam
        alpha = self.params.alpha
        if alpha == "accuracy":
            of_eam = await evaluated(self, eam, "personal")
            of_cam = await evaluated(self, cam, "personal")
            alpha = personal_weight(of_eam.accuracy, of_cam.accuracy)
            self.report(
                round=t,
                scope="personal",
                edge_accuracy=of_eam.accuracy,
                cloud_accuracy=of_cam.accuracy,
                alpha=alpha,
            )
        return await self.compute(personal_model, alpha, eam, cam, mode="other")


class Device(hierfavg.Device):
    """Trains on its own data. It does not evaluate: the paper's test sets are at the edges."""

    async def score(self, w: State, t: int) -> None:
        pass


ROLES: dict[str, type[Role]] = {
    "cloud": Cloud,
    "edge": Edge,
    "device": Device,
}
