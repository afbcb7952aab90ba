"""Optimizers for training. An optimizer is made for its parameters; each call with a loss takes one step.

As with `torch.optim`, a step leaves alone parameters that are frozen and those that the loss does not depend on: no
decay either, and their moments stay.

`torch.optim` is not used: its first object costs every process a second of processor time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from node.learning.aggregation import State
from node.learning.devices import as_array
from node.learning.local_training import LocalTraining

BETA_1 = 0.9
BETA_2 = 0.999
EPSILON = 1e-8
Gradients = Sequence[Tensor | None]
"""The gradient for each parameter; None for a parameter that the loss does not depend on."""
NO_GRADIENTS: Gradients = ()


class DescentStep:
    """Takes steps by the gradients of a loss or by given gradients, for its ``parameters``, without frozen ones."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = [w for w in parameters if w.requires_grad]

    def __call__(self, loss: Tensor) -> None:
        self.descend(gradients_of(loss, self.parameters))

    def descend(self, given: Gradients) -> None:
        """A step by the gradient for each parameter."""
        places, gradients = _present(given)
        if places:
            with torch.no_grad():
                self._descend(places, gradients)

    def _descend(self, places: list[int], gradients: list[Tensor]) -> None:
        raise NotImplementedError


def gradients_of(loss: Tensor, parameters: Sequence[Tensor]) -> Gradients:
    """The gradients of a loss."""
    if parameters:
        return torch.autograd.grad(loss, parameters, allow_unused=True)
    return ()


def added(sums: Gradients, gradients: Gradients) -> Gradients:
    """The sum of two gradients for each parameter. Empty ``sums`` are zero."""
    if not sums:
        return gradients
    added_up = []
    for a, b in zip(sums, gradients, strict=True):
        added_up.append(_sum(a, b))
    return added_up


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None:
        return b
    if b is None:
        return a
    return a + b


def clipped(
    gradients: Gradients,
    most: float | None,
    stacked: bool = False,
) -> tuple[Gradients, Tensor]:
    """The gradients g · min(1, most / (‖g‖ + 1e-6)), where ‖g‖ is the norm of all together, as by
    `torch.nn.utils.clip_grad_norm_`, and 1 if that changed them, else 0. ``stacked``: of each client in their first
    dimension, and such a number for each (clients,). None for ``most``: as they are."""
    places, present = _present(gradients)
    if most is None or not places:
        return gradients, torch.zeros(())
    rows = []
    for gradient in present:
        clients = len(gradient) if stacked else 1
        rows.append(gradient.reshape(clients, -1))
    norms_of_parameters = []
    for row in rows:
        norms_of_parameters.append(torch.linalg.vector_norm(row, dim=1))
    stacked_norms = torch.stack(norms_of_parameters)
    norms = torch.linalg.vector_norm(stacked_norms, dim=0)
    factors = most / (norms + 1e-6)
    factors = factors.clamp(max=1.0)
    factor_of_row = factors[:, None]
    scaled: list[Tensor | None] = [None] * len(gradients)
    for place, row, gradient in zip(places, rows, present, strict=True):
        scaled[place] = (row * factor_of_row).reshape(gradient.shape)
    is_clipped = (factors < 1).float()
    if not stacked:
        is_clipped = is_clipped[0]
    return scaled, is_clipped


def _present(gradients: Gradients) -> tuple[list[int], list[Tensor]]:
    """The places of the gradients that are not None, and these gradients."""
    places = []
    present = []
    for place, gradient in enumerate(gradients):
        if gradient is not None:
            places.append(place)
            present.append(gradient)
    return places, present


class Descent(DescentStep):
    """Stochastic gradient descent as in `torch.optim.SGD`: g ← ∇loss + λw, v ← ρv + g, w ← w − ηv."""

    def __init__(self, parameters: Sequence[Tensor], params: LocalTraining) -> None:
        super().__init__(parameters)
        self.params = params
        if params.momentum:
            self.velocities = [torch.zeros_like(w) for w in self.parameters]
        else:
            self.velocities = []

    def _descend(self, places: list[int], gradients: list[Tensor]) -> None:
        weights = [self.parameters[place] for place in places]
        if self.params.weight_decay:
            decay = self.params.weight_decay
            gradients = list(torch._foreach_add(gradients, weights, alpha=decay))
        if self.params.momentum:
            velocities = [self.velocities[place] for place in places]
            torch._foreach_mul_(velocities, self.params.momentum)
            torch._foreach_add_(velocities, gradients)
            gradients = velocities
        torch._foreach_add_(weights, gradients, alpha=-self.params.learning_rate)


class Adam(DescentStep):
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
        super().__init__(parameters)
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.decay = decay
        count = len(self.parameters)
        self.steps = [0] * count  # of each parameter
        self.first = [torch.zeros_like(w) for w in self.parameters]
        self.second = [torch.zeros_like(w) for w in self.parameters]

    def _descend(self, places: list[int], gradients: list[Tensor]) -> None:
        weights = [self.parameters[place] for place in places]
        first = [self.first[place] for place in places]
        second = [self.second[place] for place in places]
        for place in places:
            self.steps[place] += 1
        steps = [self.steps[place] for place in places]
        if self.weight_decay:
            gradients = list(torch._foreach_add(gradients, weights, alpha=self.weight_decay))
        if self.decay:
            torch._foreach_mul_(weights, 1 - self.learning_rate * self.decay)
        torch._foreach_lerp_(first, gradients, 1 - BETA_1)
        torch._foreach_mul_(second, BETA_2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - BETA_2)
        scale = torch._foreach_sqrt(second)
        corrections = [(1 - BETA_2**taken) ** 0.5 for taken in steps]
        torch._foreach_div_(scale, corrections)
        torch._foreach_add_(scale, EPSILON)
        rates = [-self.learning_rate / (1 - BETA_1**taken) for taken in steps]
        torch._foreach_addcdiv_(weights, first, scale, rates)

    def _moments(self) -> tuple[tuple[str, list[Tensor]], ...]:
        return (("first", self.first), ("second", self.second))

    def state(self) -> State:
        """Copies of the moments, by the number of the parameter, and the number of steps that each has taken."""
        state = {}
        for name, moments in self._moments():
            for place, moment in enumerate(moments):
                state[f"{name}.{place}"] = as_array(moment).copy()
        state["steps"] = np.array(self.steps)
        return state

    def resumed(self, state: State) -> Adam:
        """Load the moments from `state` and return this optimizer. An empty `state` changes nothing."""
        if not state:
            return self
        steps = np.broadcast_to(state["steps"], len(self.steps))
        self.steps = steps.tolist()
        for name, moments in self._moments():
            for place, moment in enumerate(moments):
                stored = torch.tensor(state[f"{name}.{place}"])
                moment.copy_(stored)
        return self


def optimizer(parameters: Sequence[Tensor], params: LocalTraining) -> DescentStep:
    """A new optimizer for local training, without moments from earlier rounds."""
    if params.optimizer == "adam":
        return Adam(parameters, params.learning_rate, weight_decay=params.weight_decay)
    return Descent(parameters, params)
