"""A trial of devices: ``python -m node.learning.trial cuda cuda:1`` prints, as one JSON object, whether torch can train
on each of them. It has the ``name`` of a device that works, or the ``problem`` of one that does not:

    {"cuda": {"name": "NVIDIA H100 80GB HBM3"}, "cuda:1": {"problem": "there is 1 GPU, and numbers start at 0"}}

A process of its own tries them: a process that has used CUDA cannot be forked any more.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import torch


def tried(name: str) -> dict[str, str]:
    """Multiply two matrices on a device, and differentiate. Return its ``name``, or the ``problem``."""
    device = torch.device(name)
    if device.type != "cuda":
        return {"name": name}
    if torch.version.cuda is None and torch.version.hip is None:
        return {"problem": f"torch {torch.__version__} is a build for processors only"}
    if not torch.cuda.is_available():
        return {"problem": f"torch {torch.__version__} finds no GPU that it can use"}
    count = torch.cuda.device_count()
    number = device.index or 0
    if number >= count:
        gpus = "is 1 GPU" if count == 1 else f"are {count} GPUs"
        return {"problem": f"there {gpus}, and numbers start at 0"}
    try:
        w = torch.ones(16, 16, device=device, requires_grad=True)
        product = (w @ w).sum()
        (gradient,) = torch.autograd.grad(product, [w])
        gradient.cpu()
        return {"name": torch.cuda.get_device_name(device)}
    except RuntimeError as error:
        first_line = str(error).strip().splitlines()[0]
        return {"problem": f"a trial failed: {first_line}"}


def main(names: Sequence[str]) -> None:
    results = {name: tried(name) for name in names}
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1:])
