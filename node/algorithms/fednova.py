"""FedNova. J. Wang, Q. Liu, H. Liang, G. Joshi, H. V. Poor, "Tackling the Objective Inconsistency Problem in
Heterogeneous Federated Optimization", NeurIPS 2020, arXiv 2007.07481, equations 4 and 5 and section 5.

w global model, w_i the model client i trained from it, τ_i its optimizer steps, ρ momentum, p_i = n_i / n its share of
the samples, a_i how often its gradients count in w − w_i, so that (w − w_i) / a_i is its mean step.

    client   w_i ← w, then τ_i steps of SGD with momentum ρ and a velocity that starts at 0
    cloud    a_i = (τ_i − ρ (1 − ρ^τ_i) / (1 − ρ)) / (1 − ρ)
             τ_eff = Σ_i p_i a_i
             w ← w − τ_eff Σ_i p_i (w − w_i) / a_i

Equal τ_i is FedAvg up to rounding. Unequal τ_i do not pull w towards the clients that took more steps.

Departures: n is summed over the clients that answered, all by default. Only trained
parameters take the normalised step. Batch normalisation's running statistics are averaged as in FedAvg, since they are
no sums of steps and would leave their range. Its counters take the maximum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from node.algorithms import fedavg
from node.algorithms.common import fitting, with_samples
from node.learning.aggregation import State, weighted_mean
from node.learning.training import Learner, TrainResult
from node.messaging.wire import Message
from node.role import Role


def accumulated(tau: int, rho: float) -> float:
    """a_i = ‖a_i‖₁ of `tau` steps with momentum `rho`: step s counts (1 − ρ^(τ−s+1)) / (1 − ρ) times by the end."""
    decayed = rho * (1 - rho**tau) / (1 - rho)
    return (tau - decayed) / (1 - rho)


def normalised_average(
    learner: Learner,
    w: State,
    states: Sequence[State],
    samples: Sequence[int],
    a: Sequence[float],
) -> State:
    """w − τ_eff Σ_i p_i (w − w_i) / a_i for the model's parameters, Σ_i p_i w_i for the rest of its state."""
    n = sum(samples)
    p = [n_i / n for n_i in samples]
    products = [p_i * a_i for p_i, a_i in zip(p, a, strict=True)]
    tau_eff = sum(products)
    average = weighted_mean(states, samples)
    for name, _ in learner.model.named_parameters():
        if name not in w:
            continue
        w_before = w[name]
        step = np.zeros(w_before.shape, dtype=np.float64)
        for w_i, p_i, a_i in zip(states, p, a, strict=True):
            if a_i:
                difference = w_before.astype(np.float64) - w_i[name]
                step += (p_i / a_i) * difference
        w_after = w_before - tau_eff * step
        average[name] = w_after.astype(w_before.dtype)
    return average


class Cloud(fedavg.Cloud):
    """Averages its clients' mean steps. Its model has the final accuracy on the global test set."""

    async def aggregate(self, updates: Sequence[Message], w: State, t: int) -> State:
        fit = fitting(self, updates, w, "steps")
        counted = with_samples(self, fit)
        if not counted:
            return w
        states = []
        samples = []
        a = []
        for update in counted:
            tau = update.fields["steps"]
            states.append(update.tensors)
            samples.append(update.fields["samples"])
            a.append(accumulated(tau, self.params.momentum))
        return await self.compute(
            self.learner.apply,
            normalised_average,
            w,
            states,
            samples,
            a,
            mode="other",
        )


class Client(fedavg.Client):
    """Trains as FedAvg's client, and reports its optimizer steps."""

    def update_fields(self, result: TrainResult) -> dict[str, int]:
        fields = super().update_fields(result)
        return {**fields, "steps": result.steps}


ROLES: dict[str, type[Role]] = {
    "cloud": Cloud,
    "edge": Client,
    "device": Client,
}
