"""Activation checkpointing (T. Chen, B. Xu, C. Zhang, C. Guestrin, 2016, arXiv 1604.06174): a block of the model keeps
its input only, and the backward pass computes the block again.

`torch.utils.checkpoint` does the same, but loads torch's compiler, which takes seconds in each process, and updates the
running statistics of batch normalisation twice.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from node.learning.errors import ModelError
from node.learning.local_training import LocalTraining
from node.learning.models import Model

Forward = Callable[[Tensor], Tensor]


@contextlib.contextmanager
def recomputing(model: Model, params: LocalTraining) -> Iterator[None]:
    """While it is active, forward passes keep only the inputs of the model's blocks, if ``params`` say so.

    The blocks are the innermost members with layers of their own of each `nn.Sequential`. If there are none, they are
    √n parts of the extractor's n layers. Raises ModelError for an extractor that is no `nn.Sequential` either.
    """
    forwards = _forwards(model) if params.gradient_checkpointing else {}
    for module, forward in forwards.items():
        vars(module)["forward"] = forward
    try:
        yield
    finally:
        for module in forwards:
            del vars(module)["forward"]


def _forwards(model: Model) -> dict[nn.Module, Forward]:
    """New forward methods of some of the model's modules."""
    members = [each for row in model.modules() if isinstance(row, nn.Sequential) for each in row]
    wide = dict.fromkeys(each for each in members if any(each.children()))
    blocks = [each for each in wide if wide.keys().isdisjoint(set(each.modules()) - {each})]
    if blocks:
        return {block: partial(_kept_small, block, block.forward) for block in blocks}
    if isinstance(model.extractor, nn.Sequential):
        layers = list(model.extractor)
    else:
        layers = []
    if not layers:
        raise ModelError(
            "gradient_checkpointing: the model has no nn.Sequential, whose members are computed again: leave it out"
        )
    length = math.ceil(math.sqrt(len(layers)))
    parts = [nn.Sequential(*layers[start : start + length]) for start in range(0, len(layers), length)]

    def through(x: Tensor) -> Tensor:
        for part in parts:
            x = _kept_small(part, part.forward, x)
        return x

    return {model.extractor: through}


def _kept_small(block: nn.Module, forward: Forward, x: Tensor) -> Tensor:
    """``forward(x)`` of a block, which keeps x only."""
    if not torch.is_grad_enabled():
        return forward(x)
    made: Tensor = _Recomputed.apply(block, forward, x, *block.parameters())  # type: ignore[no-untyped-call]
    return made


class _Recomputed(torch.autograd.Function):
    """``forward`` of a block as one operation with the input x and the block's parameters."""

    @staticmethod
    def forward(
        ctx: Any,
        block: nn.Module,
        forward: Forward,
        x: Tensor,
        *weights: Tensor,
    ) -> Tensor:
        ctx.block, ctx.of_block, ctx.draws = block, forward, _generators(x.device)
        kind = x.device.type
        ctx.casting = kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
        version = x._version
        made = forward(x)
        if x._version != version:
            raise ModelError("gradient_checkpointing: a block of the model changes its input in place: leave it out")
        ctx.save_for_backward(x, *weights)
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, *weights = ctx.saved_tensors
        needed = ctx.needs_input_grad[2:]
        x = x.detach().requires_grad_(needed[0])
        statistics = [each.clone() for each in ctx.block.buffers()]
        before = _generators(x.device)
        _restore(ctx.draws, x.device)
        with torch.enable_grad(), torch.autocast(*ctx.casting):
            made = ctx.of_block(x)
        _restore(before, x.device)
        inputs = [each for each, required in zip((x, *weights), needed, strict=True) if required]
        found = iter(torch.autograd.grad(made, inputs, gradients, allow_unused=True))
        for each, values in zip(ctx.block.buffers(), statistics, strict=True):
            each.copy_(values)
        return None, None, *(next(found) if required else None for required in needed)


def _generators(device: torch.device) -> list[Tensor]:
    """The states of the generators that a pass on the device may draw from."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def _restore(states: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state, device)
