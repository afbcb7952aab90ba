"""The import of torchvision on demand.

PyPI's torchvision needs CUDA libraries. With a CPU build of torch its compiled operators do not load. Its import then
fails with "operator torchvision::nms does not exist", because it registers shapes for the missing operators. If the two
operators are declared first, models, data sets and transforms work. The operators themselves stay unusable.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def torchvision(module: str = "torchvision") -> ModuleType:
    """Import torchvision, or one of its modules by full name, with or without its compiled operators."""
    import torch

    try:
        return import_module(module)
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    for operator in ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", signature)
    return import_module(module)
