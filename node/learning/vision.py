"""The import of torchvision on demand, and downloads with it.

PyPI's torchvision needs CUDA libraries. With a CPU build of torch its compiled operators do not load. Its import then
fails with "operator torchvision::nms does not exist", because it registers shapes for the missing operators. If the two
operators are declared first, models, data sets and transforms work. The operators themselves stay unusable.
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
    """Fetch data set `name` into `directory` and return the path of its files. None if there is no download for it.

    Raises OSError or RuntimeError (torchvision's own) when the network or the server fails.
    """
    if name == "cifar10":
        # torchvision's own CIFAR10 class unpickles, which needs trust in the file; the binary version needs none.
        torchvision("torchvision.datasets.utils").download_url(CIFAR10_URL, str(directory), md5=CIFAR10_MD5)
        return directory / "cifar-10-binary.tar.gz"
    classes = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
    if name not in classes:
        return None
    getattr(torchvision("torchvision.datasets"), classes[name])(str(directory), download=True)
    return directory / classes[name] / "raw"
