"""Torchvision's networks for clients with different models, and what a pass through a network costs.

Each network is an extractor and a classifier, see `node.learning.models`. `node.catalogue.models` has the groups that a
scenario may name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import interpolate
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from node.catalogue.datasets import Shape
from node.catalogue.models import BACKBONES, PATCH, Torchvision
from node.catalogue.sizes import EVALUATION, TRAINING, Size
from node.learning.devices import device_of, map_parts
from node.learning.networks.vision import torchvision


class Scaled(nn.Module):
    """Pictures as input of torchvision's networks: scaled to a square; grey ones get three equal channels."""

    def __init__(self, image_size: int) -> None:
        super().__init__()
        self.image_size = image_size

    def forward(self, x: Tensor) -> Tensor:
        size = (self.image_size, self.image_size)
        scaled = interpolate(x, size=size, mode="bilinear", align_corners=False)
        return scaled.expand(-1, 3, -1, -1)


def torchvision_network(
    shape: Shape,
    classes: int,
    params: Torchvision,
) -> tuple[nn.Module, nn.Module]:
    """One of torchvision's networks without its last layer, for pictures scaled to ``image_size``, and a linear
    classifier. ViT-Tiny is torchvision's vision transformer of 12 layers, 3 heads and 192 features."""
    scaled = Scaled(params.image_size)
    extractor = nn.Sequential(scaled, _backbone(params))
    features = BACKBONES[params.architecture].features
    return extractor, nn.Linear(features, classes)


def _backbone(params: Torchvision) -> nn.Module:
    models: Any = torchvision("torchvision.models")
    name = params.architecture
    if name == "vit-tiny":
        network = models.VisionTransformer(
            image_size=params.image_size,
            patch_size=PATCH,
            num_layers=12,
            num_heads=3,
            hidden_dim=192,
            mlp_dim=768,
        )
        network.heads = nn.Identity()
        return cast(nn.Module, network)
    if name == "squeezenet-1.1":  # its own classifier is a convolution: a linear one after pooling is as large
        features = models.squeezenet1_1(weights=None).features
        pooling = nn.AdaptiveAvgPool2d(1)
        return nn.Sequential(features, pooling, nn.Flatten())
    if name == "googlenet":
        options = {"aux_logits": False, "init_weights": True}
    else:
        options = {}
    function = name.replace("-", "_").replace(".", "_")
    make = getattr(models, function)
    network = make(weights=None, **options)
    if hasattr(network, "fc"):
        network.fc = nn.Identity()
    else:  # the classifier has several layers: replace the last
        network.classifier[-1] = nn.Identity()
    return cast(nn.Module, network)


def layers_of(module: nn.Module) -> list[nn.Module]:
    """The modules without submodules."""
    layers = []
    for layer in module.modules():
        if not list(layer.children()):
            layers.append(layer)
    return layers


Called = list[tuple[nn.Module, int]]
"""The layers that a forward pass calls, each with the number of its output values."""


def layer_outputs(module: nn.Module, sample: Any) -> Called:
    """The layers that a forward pass of one sample (1, ...) calls, each with the number of its output values. The
    sample may be on another device than the module."""
    called: Called = []

    def note(
        layer: nn.Module,
        inputs: tuple[Tensor, ...],
        output: Tensor,
    ) -> None:
        values = output[0].numel()
        called.append((layer, values))

    hooks = []
    for layer in layers_of(module):
        hooks.append(layer.register_forward_hook(note))
    try:
        with torch.no_grad():
            device = device_of(module)
            on_device = map_parts(lambda part: part.to(device), sample)
            module.eval()
            module(on_device)
    finally:
        for hook in hooks:
            hook.remove()
    return called


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations of convolutions and products of matrices by torch's own formulas. torch's FlopCounterMode
    does the same, but loads torch's compiler for that, which takes a second in each process."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = 0
        self.widest = 0

    @property
    def multiply_adds(self) -> int:
        return self.operations // 2

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        output = func(*args, **named)
        count = flop_registry.get(func.overloadpacket)
        if count:
            self.operations += count(*args, **named, out_val=output)
            self.widest = max(self.widest, output.numel())
        return output


def _counted(module: nn.Module, sample: Any) -> tuple[_Counter, Called]:
    """The operations of the convolutions and products of matrices in a forward pass of one sample (1, ...), and its
    `layer_outputs`."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # the formulas do not know fused attention
    try:
        with sdpa_kernel(SDPBackend.MATH), _Counter() as counter:
            called = layer_outputs(module, sample)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return counter, called


def pass_seconds(
    module: nn.Module,
    sample: Any,
    count: int,
    trained: bool,
) -> float:
    """The time on the reference core of a pass of ``count`` samples like ``sample`` (1, ...), counted as that of a
    mini-batch: forward, and backward if the module is trained."""
    counted, called = _counted(module, sample)
    if trained:
        rates = TRAINING
    else:
        rates = EVALUATION
    values = sum(values for _, values in called)
    operations_of_one = counted.multiply_adds * rates.per_operation
    of_one = operations_of_one + values * rates.per_value
    of_layers = len(called) * rates.per_layer
    return of_layers + count * of_one


def saved_values(module: nn.Module, samples: Any, count: int) -> int:
    """The float32 numbers that a forward pass of training keeps for the backward pass of one of ``count`` samples,
    without the module's own."""
    own = set()
    tensors = [*module.parameters(), *module.buffers()]
    for tensor in tensors:
        storage = tensor.untyped_storage()
        own.add(storage.data_ptr())
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address not in own:
            kept[address] = storage  # it is not freed, so no other has its address
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        module.train()
        module(samples).log_softmax(-1)
    size = sum(storage.nbytes() for storage in kept.values())
    return size // (4 * count)


def _numbers(inputs: Any) -> int:
    """The numbers of a model's inputs, in all their parts."""
    parts: Iterable[Tensor] = (inputs,)
    if isinstance(inputs, dict):
        parts = inputs.values()
    elif isinstance(inputs, tuple):
        parts = inputs
    return sum(part.numel() for part in parts)


def forward_work(module: nn.Module, sample: Any) -> Size:
    """The operations, values, layers and widest output of a forward pass of one sample (1, ...); a size without
    parameters."""
    counted, called = _counted(module, sample)
    return Size(
        parameters=0,
        operations=counted.multiply_adds,
        values=sum(values for _, values in called),
        layers=len(layers_of(module)),
        widest=max(_numbers(sample), counted.widest),
    )
