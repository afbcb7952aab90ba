"""The models, each with its size in closed form, and groups of models for clients with different models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from node.catalogue.datasets import Shape
from node.parameters import Parameters, read_parameters, whole, word

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class NoParameters(Parameters):
    """No parameters."""


@dataclass(frozen=True, kw_only=True)
class Features(Parameters):
    """features: put a linear layer with so many outputs between the extractor and the classifier, so that clients with
    different models have features of one size; without, each model has its own number."""

    features: int | None = whole(None, low=1, none=True)


@dataclass(frozen=True, kw_only=True)
class MLP(Features):
    """hidden: width of a hidden layer; layers: number of hidden layers. FedFeat+'s model has 2 of 512."""

    hidden: int = whole(200, low=1)
    layers: int = whole(1, low=1)


@dataclass(frozen=True, kw_only=True)
class ImageSize(Features):
    """image_size: pixels a side to which pictures are scaled before they enter the network."""

    image_size: int = whole(128, low=32)


@dataclass(frozen=True)
class Backbone:
    """The numbers of values in a torchvision network without its classifier, and the number of its features."""

    parameters: int
    buffers: int
    counters: int
    features: int


BACKBONES: dict[str, Backbone] = {  # first the ten of DFFKE, in its order
    "resnet18": Backbone(11_176_512, 9_600, 20, 512),
    "resnet34": Backbone(21_284_672, 17_024, 36, 512),
    "resnet50": Backbone(23_508_032, 53_120, 53, 2048),
    "googlenet": Backbone(5_599_904, 14_560, 57, 1024),
    "efficientnet-v2-s": Backbone(20_177_488, 153_872, 110, 1280),
    "mobilenet-v3-small": Backbone(1_517_856, 12_112, 34, 1024),
    "mobilenet-v3-large": Backbone(4_202_032, 24_400, 46, 1280),
    "shufflenet-v2-x1.5": Backbone(2_478_624, 23_440, 56, 1024),
    "shufflenet-v2-x2.0": Backbone(5_344_996, 33_716, 56, 2048),
    "vit-tiny": Backbone(5_486_784, 0, 0, 192),  # and a position of 192 for each patch
    "squeezenet-1.1": Backbone(722_496, 0, 0, 512),
}
PATCH = 16  # pixels a side of ViT-Tiny's patches


@dataclass(frozen=True, kw_only=True)
class Torchvision(ImageSize):
    """architecture: one of torchvision's networks, untrained as in the papers."""

    architecture: str = word("resnet18", *BACKBONES)


@dataclass(frozen=True, kw_only=True)
class ResNet(Parameters):
    """width: the channels of the first stage; the others have 2, 4 and 8 times as many. initialisation of the
    convolutions: `fixup`, whose blocks begin as their shortcuts; `kaiming`; or `torch`, torch's default, with which a
    network without normalisation first stays at chance for some rounds."""

    width: int = whole(64, low=1)
    initialisation: str = word("fixup", "fixup", "kaiming", "torch")


@dataclass(frozen=True)
class Size:
    """The size of a model's state: the numbers of trained `parameters` (float32), float `buffers` and integer
    `counters` (int64); the number of `features` in the vector that its extractor makes of a sample, 0 if it makes none;
    and whether its classifier is one `linear` layer."""

    parameters: int
    buffers: int = 0
    counters: int = 0
    features: int = 0
    linear: bool = True

    @property
    def bytes(self) -> int:
        """Bytes of the state in a message, without the header."""
        return 4 * (self.parameters + self.buffers) + 8 * self.counters


@dataclass(frozen=True)
class ModelEntry:
    """A model. `build(shape, classes, params)` makes its extractor and its classifier, two torch modules. Or it makes
    one torch module, which then serves only algorithms that do not use features. It imports torch itself, since plans
    are made without torch. If it is None, `node.learning.models` builds the model.

    `measure(shape, classes, params)` returns its size in closed form, or raises ValueError for an unsupported shape. If
    it is None, the size is measured on the model itself.
    """

    name: str
    summary: str = ""
    params: type[Parameters] = NoParameters
    measure: Callable[[Shape, int, Any], Size] | None = None
    build: Callable[[Shape, int, Any], tuple[nn.Module, nn.Module] | nn.Module] | None = None

    def size(self, shape: Shape, classes: int, params: Mapping[str, Any] | None = None) -> Size:
        """Size for samples of `shape` and `classes` classes. Raises ValueError naming the unsupported value."""
        assert self.measure is not None
        try:
            chosen = read_parameters(self.params, params or {})
            own = self.measure(shape, classes, chosen)
        except ValueError as error:
            raise ValueError(f"model {self.name}: {error}") from error
        if not isinstance(chosen, Features) or chosen.features is None:
            return own
        added = (own.features + 1) * chosen.features + (chosen.features + 1) * classes
        without_classifier = own.parameters - (own.features + 1) * classes
        return replace(own, parameters=without_classifier + added, features=chosen.features)

    def parameters(self, shape: Shape, classes: int, params: Mapping[str, Any] | None = None) -> int:
        """Number of trained parameters for samples of `shape` and `classes` classes."""
        return self.size(shape, classes, params).parameters


def _cnn(shape: Shape, classes: int, _: Any) -> Size:
    if len(shape) not in (2, 3):
        raise ValueError(f"takes images or sequences, not samples of shape {shape}; take mlp")
    channels, window = shape[0], 3 ** (len(shape) - 1)
    half = [math.ceil(math.ceil(side / 2) / 2) for side in shape[1:]]
    convolutions = (channels * window + 1) * 6 + (6 * window + 1) * 16
    norms = 2 * (6 + 16)
    linear = (16 * math.prod(half) + 1) * 32 + 33 * classes
    return Size(convolutions + norms + linear, buffers=norms, counters=2, features=32)


def _phefl_cnn(shape: Shape, classes: int, _: Any) -> Size:
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise ValueError(f"takes images of at least 4x4, not samples of shape {shape}")
    quarter = 64 * (shape[1] // 4) * (shape[2] // 4)
    return Size((shape[0] * 25 + 1) * 32 + (32 * 25 + 1) * 64 + (quarter + 1) * 512 + 513 * classes, features=512)


def _mlp(shape: Shape, classes: int, params: MLP) -> Size:
    deeper = (params.layers - 1) * (params.hidden + 1) * params.hidden
    parameters = (math.prod(shape) + 1) * params.hidden + deeper + (params.hidden + 1) * classes
    return Size(parameters, features=params.hidden)


def _build_mlp(shape: Shape, classes: int, params: MLP) -> tuple[nn.Module, nn.Module]:
    """Hidden layers with ReLU, for any shape."""
    from torch import nn

    deeper = [nn.Sequential(nn.Linear(params.hidden, params.hidden), nn.ReLU()) for _ in range(params.layers - 1)]
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), params.hidden), nn.ReLU(), *deeper)
    return extractor, nn.Linear(params.hidden, classes)


def _fedfeat_cnn(shape: Shape, classes: int, _: Any) -> Size:
    if len(shape) != 3 or min(shape[1:]) < 16:
        raise ValueError(f"takes images of at least 16x16, not samples of shape {shape}")
    features = 64 * math.prod(((side - 4) // 2 - 4) // 2 for side in shape[1:])
    parameters = (shape[0] * 25 + 1) * 32 + (32 * 25 + 1) * 64 + (features + 1) * 512 + 513 * classes
    return Size(parameters, features=features, linear=False)


def _resnet18(shape: Shape, classes: int, params: ResNet) -> Size:
    if len(shape) != 3 or min(shape[1:]) < 8:
        raise ValueError(f"takes images of at least 8x8, not samples of shape {shape}")
    total, inside = (shape[0] * 9 + 1) * params.width, params.width
    for width in (params.width * growth for growth in (1, 2, 4, 8)):
        total += (inside * 9 + 1) * width + 3 * (width * 9 + 1) * width
        total += (inside + 1) * width if inside != width else 0  # the 1x1 shortcut of a stage that narrows
        inside = width
    return Size(total + (inside + 1) * classes, features=inside)


def _lenet(shape: Shape, classes: int, _: Any) -> Size:
    if len(shape) != 3 or min(shape[1:]) < 8:
        raise ValueError(f"takes images of at least 8x8, not samples of shape {shape}")
    quarter = 16 * (shape[1] // 4) * (shape[2] // 4)
    parameters = (shape[0] * 25 + 1) * 6 + (6 * 25 + 1) * 16 + (quarter + 1) * 120 + 121 * 84 + 85 * classes
    return Size(parameters, features=84)


def _separable_cnn(shape: Shape, classes: int, _: Any) -> Size:
    if len(shape) != 3 or min(shape[1:]) < 8:
        raise ValueError(f"takes images of at least 8x8, not samples of shape {shape}")
    widths = (16, 32, 48)
    norms, weights = 2 * widths[0], shape[0] * 9 * widths[0]
    for inside, width in pairwise(widths):
        weights += 9 * inside + inside * width
        norms += 2 * (inside + width)
    return Size(weights + norms + 49 * classes, buffers=norms, counters=2 * len(widths) - 1, features=48)


def _tiny_resnet(shape: Shape, classes: int, _: Any) -> Size:
    if len(shape) != 3 or min(shape[1:]) < 8:
        raise ValueError(f"takes images of at least 8x8, not samples of shape {shape}")
    total = (shape[0] * 9 + 1) * 16
    for inside, width in ((16, 16), (16, 32), (32, 64)):
        total += (inside * 9 + 1) * width + (width * 9 + 1) * width
        total += (inside + 1) * width if inside != width else 0
    return Size(total + 65 * classes, features=64)


def _torchvision(shape: Shape, classes: int, params: Torchvision) -> Size:
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise ValueError(f"takes images of one or three channels, not samples of shape {shape}")
    own = BACKBONES[params.architecture]
    positions = 0
    if params.architecture == "vit-tiny":
        if params.image_size % PATCH:
            raise ValueError(f"image_size: {params.image_size} is no multiple of vit-tiny's patches of {PATCH}")
        positions = (params.image_size // PATCH) ** 2 * own.features
    head = (own.features + 1) * classes
    return Size(own.parameters + positions + head, own.buffers, own.counters, own.features)


MODELS: dict[str, ModelEntry] = {
    model.name: model
    for model in (
        ModelEntry(
            "cnn",
            "two small 3x3 convolutions of stride 2 with batch normalisation (FedGen, FEELPGen)",
            Features,
            _cnn,
        ),
        ModelEntry(
            "phefl-cnn",
            "5x5 convolutions 32 and 64 with pooling, 512 features (McMahan 2017, PHE-FL)",
            NoParameters,
            _phefl_cnn,
        ),
        ModelEntry("mlp", "hidden layers, one by default", MLP, _mlp, _build_mlp),
        ModelEntry(
            "fedfeat-cnn",
            "two 5x5 convolutions with pooling, and a classifier of two layers (FedFeat+)",
            NoParameters,
            _fedfeat_cnn,
        ),
        ModelEntry("resnet18", "ResNet-18 for small images, without batch normalisation (FedEDS)", ResNet, _resnet18),
        ModelEntry("lenet", "LeNet-5 (LeCun 1998): 84 features", Features, _lenet),
        ModelEntry(
            "separable-cnn",
            "depthwise separable convolutions with batch normalisation: 48 features",
            Features,
            _separable_cnn,
        ),
        ModelEntry("tiny-resnet", "residual blocks of 16, 32 and 64 channels: 64 features", Features, _tiny_resnet),
        ModelEntry("torchvision", "one of torchvision's networks (DFFKE)", Torchvision, _torchvision),
    )
}


@dataclass(frozen=True)
class ModelGroup:
    """Models for clients with different models: client k gets member k modulo their number. All get ``params``."""

    name: str
    summary: str
    params: type[Parameters]
    members: tuple[tuple[str, Mapping[str, Any]], ...]

    def member(self, client: int, params: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """The model of a client, counted from 0, and that model's parameters."""
        name, own = self.members[client % len(self.members)]
        given = read_parameters(self.params, params or {})
        shared = {entry.name: getattr(given, entry.name) for entry in fields(given)}
        return name, {**shared, **own}

    def size(self, shape: Shape, classes: int, params: Mapping[str, Any] | None = None) -> Size:
        """The size of the largest member, with the most features of any. ValueError naming an unsupported value."""
        sizes = self.sizes(shape, classes, params)
        return replace(max(sizes, key=lambda size: size.bytes), features=max(size.features for size in sizes))

    def sizes(self, shape: Shape, classes: int, params: Mapping[str, Any] | None = None) -> list[Size]:
        """The size of each member. ValueError naming an unsupported value."""
        chosen = [self.member(client, params) for client in range(len(self.members))]
        return [MODELS[name].size(shape, classes, own) for name, own in chosen]


def _htfe(count: int) -> ModelGroup:
    members = tuple(("torchvision", {"architecture": name}) for name in list(BACKBONES)[:count])
    return ModelGroup(f"htfe-{count}", f"the first {count} of DFFKE's ten architectures", ImageSize, members)


MODEL_GROUPS: dict[str, ModelGroup] = {
    group.name: group
    for group in (
        ModelGroup(
            "small",
            "five small networks for CPUs: cnn, mlp, lenet, tiny-resnet, separable-cnn",
            Features,
            tuple((name, {}) for name in ("cnn", "mlp", "lenet", "tiny-resnet", "separable-cnn")),
        ),
        *(_htfe(count) for count in (1, 2, 5, 10)),
    )
}


def model_of(name: str, params: Mapping[str, Any], client: int) -> tuple[str, dict[str, Any]]:
    """The model of a client, counted from 0, and its parameters. `name` is a model or a group."""
    return MODEL_GROUPS[name].member(client, params) if name in MODEL_GROUPS else (name, dict(params))
