"""Which parameters and buffers of a model can travel in messages, be averaged and be saved: dense tensors on the
processor, of the types of `node.messaging.wire`, with finite values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

if TYPE_CHECKING:
    from node.learning.models import Model

TYPES = {
    torch.bool,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
}
COMPLEX = "keep its real and its imaginary part as two parameters, and join them with torch.complex"
OTHER_FLOATS = "make it with .float(); compute.precision: bf16 computes and sends in two bytes"
OTHERS = "keep it in one of the types float32, float64, float16, bool, or 8 to 64 bit integers"


def untravelling(model: Model) -> str | None:
    """The first entry of a model's state that cannot travel, why, and the remedy; None if all can."""
    parameters = dict(model.named_parameters())
    entries = model.state_dict()
    for name in model.travelling:
        kind = "parameter" if name in parameters else "buffer"
        problem = _problem(entries[name], kind)
        if problem:
            return f"the {kind} {name}, {problem}"
    return None


def _problem(tensor: Tensor, kind: str) -> str | None:
    if is_lazy(tensor):
        return "whose size is unknown before the first sample: give the layer its size"
    if tensor.device.type == "meta":
        return "which is on the device meta and has no values: make the model on the processor"
    if tensor.layout != torch.strided:
        layout = str(tensor.layout).removeprefix("torch.")
        return f"which is sparse ({layout}), and cannot travel: keep it dense, by .to_dense()"
    if tensor.dtype not in TYPES:
        kind_of_number = str(tensor.dtype).removeprefix("torch.")
        return f"of type {kind_of_number}, which cannot travel: {_remedy(tensor)}"
    if not tensor.isfinite().all():
        values = "which holds NaN or an infinity, and messages with one count for nothing"
        if kind == "buffer":
            remedy = "make it with persistent=False, so that it stays at each node"
        else:
            remedy = "start from finite values"
        return f"{values}: {remedy}"
    return None


def _remedy(tensor: Tensor) -> str:
    if tensor.is_complex():
        return COMPLEX
    if tensor.is_floating_point():
        return OTHER_FLOATS
    return OTHERS
