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
    """While it is active, forward passes keep only the inputs of the model's blocks, if ``params`` request it.

    The blocks are the innermost members with layers of their own of each `nn.Sequential`. If there are none, they are
    √n parts of the extractor's n layers. Raises ModelError for an extractor that is no `nn.Sequential` either.
    """
    forwards: dict[nn.Module, Forward] = {}
    if params.gradient_checkpointing:
        forwards = _forwards(model)
    for module, forward in forwards.items():
        vars(module)["forward"] = forward
    try:
        yield
    finally:
        for module in forwards:
            del vars(module)["forward"]


def _forwards(model: Model) -> dict[nn.Module, Forward]:
    """New forward methods of some of the model's modules."""
    blocks = _blocks(model)
    if blocks:
        forwards: dict[nn.Module, Forward] = {}
        for block in blocks:
            forwards[block] = partial(_kept_small, block, block.forward)
        return forwards
    layers = []
    if isinstance(model.extractor, nn.Sequential):
        layers = list(model.extractor)
    if not layers:
        raise ModelError(
            "gradient_checkpointing: the model has no nn.Sequential, whose members are computed again: leave it out"
        )
    length = math.ceil(math.sqrt(len(layers)))
    parts = []
    for start in range(0, len(layers), length):
        of_part = layers[start : start + length]
        parts.append(nn.Sequential(*of_part))

    def through(x: Tensor) -> Tensor:
        for part in parts:
            x = _kept_small(part, part.forward, x)
        return x

    return {model.extractor: through}


def _blocks(model: Model) -> list[nn.Module]:
    """The innermost members with layers of their own of each `nn.Sequential`."""
    wide: dict[nn.Module, None] = {}
    for row in model.modules():
        if not isinstance(row, nn.Sequential):
            continue
        for member in row:
            if any(member.children()):
                wide[member] = None
    innermost = []
    for member in wide:
        inside = set(member.modules()) - {member}
        if inside.isdisjoint(wide):
            innermost.append(member)
    return innermost


def _kept_small(block: nn.Module, forward: Forward, x: Tensor) -> Tensor:
    """``forward(x)`` of a block, which keeps x only."""
    if not torch.is_grad_enabled():
        return forward(x)
    output: Tensor = _Recomputed.apply(block, forward, x, *block.parameters())  # type: ignore[no-untyped-call]
    return output


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
        ctx.block = block
        ctx.of_block = forward
        ctx.draws = _generators(x.device)
        kind = x.device.type
        precision = torch.get_autocast_dtype(kind)
        ctx.casting = (kind, precision, torch.is_autocast_enabled(kind))
        version = x._version
        output = forward(x)
        if x._version != version:
            raise ModelError("gradient_checkpointing: a block of the model changes its input in place: leave it out")
        ctx.save_for_backward(x, *weights)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        needed = ctx.needs_input_grad[2:]
        saved = list(ctx.saved_tensors)  # x and the weights
        x = saved[0].detach()
        x = x.requires_grad_(needed[0])
        saved[0] = x
        statistics = [buffer.clone() for buffer in ctx.block.buffers()]
        before = _generators(x.device)
        _restore(ctx.draws, x.device)
        with torch.enable_grad(), torch.autocast(*ctx.casting):
            output = ctx.of_block(x)
        _restore(before, x.device)
        inputs = []
        for tensor, required in zip(saved, needed, strict=True):
            if required:
                inputs.append(tensor)
        computed = torch.autograd.grad(output, inputs, gradients, allow_unused=True)
        of_inputs = iter(computed)
        buffers = ctx.block.buffers()
        for buffer, values in zip(buffers, statistics, strict=True):
            buffer.copy_(values)
        of_all: list[Tensor | None] = []
        for required in needed:
            gradient = next(of_inputs) if required else None
            of_all.append(gradient)
        return None, None, *of_all


def _generators(device: torch.device) -> list[Tensor]:
    """The states of the generators that a pass on the device may draw from."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states


def _restore(states: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state, device)
