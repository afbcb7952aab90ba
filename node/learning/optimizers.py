"""Optimizers for training. An optimizer is made for its parameters; each call with a loss takes one step.

`torch.optim` is not used: its first object costs every process a second of processor time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from node.learning.aggregation import State
from node.learning.devices import as_array
from node.learning.local_training import LocalTraining

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
DescentStep = Callable[[Tensor], None]


class Descent:
    """Stochastic gradient descent as in `torch.optim.SGD`: g ← ∇loss + λw, v ← ρv + g, w ← w − ηv."""

    def __init__(self, parameters: Sequence[Tensor], params: LocalTraining) -> None:
        self.parameters = list(parameters)
        self.params = params
        self.velocities: list[Tensor] | None = None

    def __call__(self, loss: Tensor) -> None:
        gradients = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            if self.params.weight_decay:
                gradients = tuple(torch._foreach_add(gradients, self.parameters, alpha=self.params.weight_decay))
            if self.params.momentum:
                if self.velocities is None:
                    self.velocities = [torch.zeros_like(w) for w in self.parameters]
                torch._foreach_mul_(self.velocities, self.params.momentum)
                torch._foreach_add_(self.velocities, gradients)
                gradients = tuple(self.velocities)
            torch._foreach_add_(self.parameters, gradients, alpha=-self.params.learning_rate)


class Adam:
    """Steps m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g², w ← w − η (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)
    (D. P. Kingma, J. Ba, ICLR 2015, arXiv 1412.6980, Algorithm 1), as in `torch.optim.Adam`.

    `weight_decay` λ adds λw to the gradient g. `decay` shrinks w by the factor 1 − η · decay before each step,
    independent of g (AdamW: I. Loshchilov, F. Hutter, ICLR 2019, Algorithm 2). `state` and `resumed` carry the moments
    from one optimizer to the next for the same parameters.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        learning_rate: float = 1e-3,
        *,
        weight_decay: float = 0.0,
        decay: float = 0.0,
    ) -> None:
        self.parameters = list(parameters)
        self.learning_rate, self.weight_decay, self.decay = learning_rate, weight_decay, decay
        self.steps = 0
        self.first = [torch.zeros_like(w) for w in self.parameters]
        self.second = [torch.zeros_like(w) for w in self.parameters]

    def __call__(self, loss: Tensor) -> None:
        gradients = torch.autograd.grad(loss, self.parameters)
        self.steps += 1
        with torch.no_grad():
            if self.weight_decay:
                gradients = tuple(torch._foreach_add(gradients, self.parameters, alpha=self.weight_decay))
            if self.decay:
                torch._foreach_mul_(self.parameters, 1 - self.learning_rate * self.decay)
            torch._foreach_lerp_(self.first, gradients, 1 - BETA_1)
            torch._foreach_mul_(self.second, BETA_2)
            torch._foreach_addcmul_(self.second, gradients, gradients, 1 - BETA_2)
            scale = torch._foreach_sqrt(self.second)
            torch._foreach_div_(scale, (1 - BETA_2**self.steps) ** 0.5)
            torch._foreach_add_(scale, EPSILON)
            step = -self.learning_rate / (1 - BETA_1**self.steps)
            torch._foreach_addcdiv_(self.parameters, self.first, scale, step)

    def state(self) -> State:
        """Copies of the moments, by the number of the parameter, and the number of steps taken."""
        moments = {"first": self.first, "second": self.second}
        of_parameters = ((f"{name}.{place}", m) for name, each in moments.items() for place, m in enumerate(each))
        return {name: as_array(m).copy() for name, m in of_parameters} | {"steps": np.array(self.steps)}

    def resumed(self, state: State) -> Adam:
        """Load the moments from `state` and return this optimizer. An empty `state` changes nothing."""
        if state:
            self.steps = int(state["steps"])
            for name, moments in (("first", self.first), ("second", self.second)):
                for place, moment in enumerate(moments):
                    moment.copy_(torch.tensor(state[f"{name}.{place}"]))
        return self


def optimizer(parameters: Sequence[Tensor], params: LocalTraining) -> DescentStep:
    """A new optimizer for local training, without moments from earlier rounds."""
    if params.optimizer == "adam":
        return Adam(parameters, params.learning_rate, weight_decay=params.weight_decay)
    return Descent(parameters, params)
