from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from node.learning.aggregation import State
from node.learning.local_training import LocalTraining
from node.learning.optimizers import Adam, Descent, clipped, gradients_of, optimizer


@pytest.mark.parametrize(
    "options", [{}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"momentum": 0.5, "weight_decay": 1}]
)
def test_descent_is_torchs(options: dict[str, Any]) -> None:
    params = LocalTraining(learning_rate=0.1, **options)
    ours, theirs = (torch.tensor([[1.0, -2.0], [0.5, 3.0]], requires_grad=True) for _ in range(2))
    step = Descent([ours], params)
    optimizer = torch.optim.SGD([theirs], lr=0.1, **options)
    for _ in range(5):
        step((ours**3).sum())
        optimizer.zero_grad()
        torch.autograd.backward((theirs**3).sum())
        optimizer.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def loss_of(weights: list[Tensor], step: int) -> Tensor:
    """Some curved loss whose gradients differ in size, here and from step to step."""
    a, b = weights
    return ((a * (step + 1)) ** 2).sum() + torch.sin(3 * a @ b).sum() + b.abs().sum()


def start() -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in ((2, 3), (3, 4))]


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("beside", [True, False])
def test_steps_are_those_of_torch(decay: float, beside: bool) -> None:
    mine, theirs = start(), start()
    adam = Adam(mine, 0.05, decay=decay) if beside else Adam(mine, 0.05, weight_decay=decay)
    reference = (torch.optim.AdamW if beside else torch.optim.Adam)(theirs, lr=0.05, weight_decay=decay)
    for step in range(20):
        adam(loss_of(mine, step))
        reference.zero_grad()
        torch.autograd.backward(loss_of(theirs, step))
        reference.step()
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_the_first_step_is_the_learning_rate_against_the_sign_of_the_gradient() -> None:
    """m / (1 − β₁) = g and √(v / (1 − β₂)) = |g|, whatever the size of g."""
    w = torch.tensor([1.0, 1.0, 1.0], requires_grad=True)
    Adam([w], 0.25)((w * torch.tensor([1e-2, -7.0, 400.0])).sum())
    torch.testing.assert_close(w.detach(), torch.tensor([0.75, 1.25, 0.75]))


def test_moments_carry_over() -> None:
    whole, parts = start(), start()
    one, moments = Adam(whole, 0.05), State()
    for step in range(6):
        one(loss_of(whole, step))
        adam = Adam(parts, 0.05).resumed(moments)
        adam(loss_of(parts, step))
        moments = adam.state()
    for a, b in zip(whole, parts, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("params", "reference"),
    [
        (LocalTraining(learning_rate=0.1), lambda w: torch.optim.SGD(w, 0.1)),
        (
            LocalTraining(learning_rate=0.1, momentum=0.9, weight_decay=0.1),
            lambda w: torch.optim.SGD(w, 0.1, 0.9, weight_decay=0.1),
        ),
        (
            LocalTraining(optimizer="adam", learning_rate=0.1, weight_decay=0.1),
            lambda w: torch.optim.Adam(w, 0.1, weight_decay=0.1),
        ),
    ],
)
def test_frozen_unused_and_sometimes_unused_parameters_are_left_alone_as_by_torch(
    params: LocalTraining, reference: Any
) -> None:
    """The first weight is frozen, the second never used, the third used in every third step, the last in each."""
    mine, theirs = ([torch.linspace(1, 2, 3).requires_grad_(place > 0) for place in range(4)] for _ in range(2))
    ours, torchs = optimizer(mine, params), reference(theirs)
    for step in range(9):
        loss_mine, loss_theirs = (
            (w[0] * w[3] ** 2).sum() + ((w[2] ** 3).sum() if step % 3 == 1 else 0) for w in (mine, theirs)
        )
        ours(loss_mine)
        torchs.zero_grad(set_to_none=True)
        torch.autograd.backward(loss_theirs)
        torchs.step()
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b)
    assert [torch.equal(w, torch.linspace(1, 2, 3)) for w in mine] == [True, True, False, False]


@pytest.mark.parametrize("most", [0.5, 1e6])
def test_clipping_is_torchs(most: float) -> None:
    weights = start()
    gradients = [*gradients_of(loss_of(weights, 2), weights), None, torch.tensor(3.0)]
    theirs = [None if each is None else torch.zeros_like(each) for each in gradients]
    for parameter, gradient in zip(theirs, gradients, strict=True):
        if parameter is not None and gradient is not None:
            parameter.grad = gradient.clone()
    torch.nn.utils.clip_grad_norm_([each for each in theirs if each is not None], most)
    for mine, parameter in zip(clipped(gradients, most)[0], theirs, strict=True):
        if mine is None or parameter is None:
            assert mine is parameter
        else:
            torch.testing.assert_close(mine, parameter.grad)
    doubled = [None if each is None else 2 * each for each in gradients]
    stacked = [torch.stack([a, b]) for a, b in zip(gradients, doubled, strict=True) if a is not None and b is not None]
    together, were_clipped = clipped(stacked, most, stacked=True)
    assert were_clipped.tolist() == [float(most < 1e6)] * 2
    for client, alone in enumerate((gradients, doubled)):
        expected = [each for each in clipped(alone, most)[0] if each is not None]
        for many, one in zip(together, expected, strict=True):
            assert many is not None
            torch.testing.assert_close(many[client], one)
