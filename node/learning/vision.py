"""torchvision, imported where it is needed, and the downloads done with it.

PyPI's torchvision wants CUDA libraries; beside a CPU build of torch its compiled operators do not load, and then its
import fails with "operator torchvision::nms does not exist", as it registers shapes for operators that are missing.
Declaring the two operators first lets models, data sets and transforms work; the operators themselves stay unusable.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR10_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"  # as published on the data set's page


def torchvision(module: str = "torchvision") -> ModuleType:
    """Import torchvision, or one of its modules by full name, with or without its compiled operators."""
    import torch

    try:
        return import_module(module)
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    for operator in ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return import_module(module)


def download(name: str, directory: Path) -> Path | None:
    """Fetch data set `name` into `directory` and return where its files are; None if it cannot be fetched at all.

    Raises OSError or RuntimeError (torchvision's own) when the network or the server fails.
    """
    if name == "cifar10":
        # torchvision's own CIFAR10 class unpickles; the binary version needs no such trust.
        torchvision("torchvision.datasets.utils").download_url(CIFAR10_URL, str(directory), md5=CIFAR10_MD5)
        return directory / "cifar-10-binary.tar.gz"
    classes = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
    if name not in classes:
        return None
    getattr(torchvision("torchvision.datasets"), classes[name])(str(directory), download=True)
    return directory / classes[name] / "raw"
