"""The models, each with its size in closed form, and groups of models for clients with different models."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from node.catalogue.datasets import Shape
from node.catalogue.networks import NETWORKS
from node.catalogue.sizes import Layers, Size
from node.catalogue.tables import by_name
from node.parameters import Parameters, read_parameters, whole, word

if TYPE_CHECKING:
    from torch import nn

    _Modules = tuple[nn.Module, nn.Module]  # extractor and classifier


@dataclass(frozen=True, kw_only=True)
class Features(Parameters):
    """A model with a configurable number of features.

    features: outputs of a linear layer between extractor and classifier, so that different models have features of one
        size; default: no such layer
    """

    features: int | None = whole(None, low=1, none=True)


@dataclass(frozen=True, kw_only=True)
class MLP(Features):
    """A multilayer perceptron. FedFeat+'s model has 2 hidden layers of 512.

    hidden: width of a hidden layer
    layers: number of hidden layers
    """

    hidden: int = whole(200, low=1)
    layers: int = whole(1, low=1)

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.hidden,) * self.layers


@dataclass(frozen=True, kw_only=True)
class HARMLP(Features):
    """FEELPGen's network for UCI HAR: 664,646 parameters for nine channels."""

    widths: ClassVar[tuple[int, ...]] = (512, 128, 64)


@dataclass(frozen=True, kw_only=True)
class ImageSize(Features):
    """A network for pictures of a fixed size.

    image_size: width and height, in pixels, to which pictures are scaled first
    """

    image_size: int = whole(128, low=32)


BACKBONES: dict[str, Size] = {  # first the ten of DFFKE, in its order
    "resnet18": Size(
        parameters=11_176_512,
        buffers=9_600,
        counters=20,
        features=512,
        operations=592_183_296,
        values=2_491_392,
        layers=54,
        saved=1_810_432,
        widest=262_144,
    ),
    "resnet34": Size(
        parameters=21_284_672,
        buffers=17_024,
        counters=36,
        features=512,
        operations=1_196_163_072,
        values=3_720_192,
        layers=94,
        saved=2_629_632,
        widest=262_144,
    ),
    "resnet50": Size(
        parameters=23_508_032,
        buffers=53_120,
        counters=53,
        features=2048,
        operations=1_334_575_104,
        values=10_514_432,
        layers=128,
        saved=7_012_352,
        widest=262_144,
    ),
    "googlenet": Size(
        parameters=5_599_904,
        buffers=14_560,
        counters=57,
        features=1024,
        operations=488_931_328,
        values=2_621_952,
        layers=132,
        saved=3_932_672,
        widest=262_144,
    ),
    "efficientnet-v2-s": Size(
        parameters=20_177_488,
        buffers=153_872,
        counters=110,
        features=1280,
        operations=932_628_480,
        values=12_175_792,
        layers=487,
        saved=12_625_938,
        widest=196_608,
    ),
    "mobilenet-v3-small": Size(
        parameters=1_517_856,
        buffers=12_112,
        counters=34,
        features=1024,
        operations=18_824_192,
        values=1_398_728,
        layers=143,
        saved=1_326_456,
        widest=73_728,
    ),
    "mobilenet-v3-large": Size(
        parameters=4_202_032,
        buffers=24_400,
        counters=46,
        features=1280,
        operations=72_147_840,
        values=4_191_560,
        layers=170,
        saved=3_611_976,
        widest=262_144,
    ),
    "shufflenet-v2-x1.5": Size(
        parameters=2_478_624,
        buffers=23_440,
        counters=56,
        features=1024,
        operations=96_240_128,
        values=2_560_000,
        layers=166,
        saved=2_335_744,
        widest=98_304,
    ),
    "shufflenet-v2-x2.0": Size(
        parameters=5_344_996,
        buffers=33_716,
        counters=56,
        features=2048,
        operations=189_781_376,
        values=3_432_704,
        layers=166,
        saved=3_130_112,
        widest=124_928,
    ),
    # vit-tiny has a position of 192 for each patch, too
    "vit-tiny": Size(
        parameters=5_486_784,
        buffers=0,
        counters=0,
        features=192,
        operations=373_953_024,
        values=2_632_512,
        layers=114,
        saved=2_475_670,
        widest=49_920,
    ),
    "squeezenet-1.1": Size(
        parameters=722_496,
        buffers=0,
        counters=0,
        features=512,
        operations=80_091_840,
        values=1_671_360,
        layers=57,
        saved=1_540_800,
        widest=254_016,
    ),
}
"""Torchvision's networks without their classifiers, for pictures of `MEASURED_AT` pixels a side. The layers are those
of the whole model."""
MEASURED_AT = 128
HALVED = 32  # the networks halve the sides five times and round up, so the work grows with the next multiple
PATCH = 16  # pixels a side of ViT-Tiny's patches


@dataclass(frozen=True, kw_only=True)
class Torchvision(ImageSize):
    """One of torchvision's networks.

    architecture: one of torchvision's networks, untrained
    """

    architecture: str = word("resnet18", *BACKBONES)


@dataclass(frozen=True, kw_only=True)
class ResNet(Parameters):
    """A residual network.

    width: channels of the first stage; the others have 2, 4 and 8 times as many
    initialisation: fixup (blocks start as their shortcuts), kaiming, or torch (which stays at chance for some rounds)
    """

    width: int = whole(64, low=1)
    initialisation: str = word("fixup", "fixup", "kaiming", "torch")


@dataclass(frozen=True, kw_only=True)
class CharTransformer(Parameters):
    """A transformer for texts.

    layers: number of blocks
    width: values of each token between the blocks, a multiple of `heads`
    heads: heads of attention
    """

    layers: int = whole(2, low=1)
    width: int = whole(64, low=1)
    heads: int = whole(4, low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise ValueError(f"width: {self.width} is not a multiple of {self.heads} heads")


@dataclass(frozen=True)
class ModelEntry:
    """A model. `build(shape, classes, params)` makes its extractor and its classifier, two torch modules. Or it makes
    one torch module, which then serves only algorithms that do not use features. Of samples with several parts, `shape`
    is a dictionary or tuple of theirs. `build` imports torch itself, since plans are made without torch. If it is None,
    `node.learning.models` builds the model.

    `measure(shape, classes, params)` returns its size in closed form, or raises ValueError for an unsupported shape. If
    it is None, the size is measured on the model itself.

    Without `frozen_travels`, parameters with `requires_grad` False are never sent. `build` must create the same
    ones on every node: from the seeded generators, or from a file.
    """

    name: str
    summary: str = ""
    params: type[Parameters] = Parameters
    measure: Callable[[Shape, int, Any], Size] | None = None
    build: Callable[[Any, int, Any], _Modules | nn.Module] | None = None
    frozen_travels: bool = True

    def size(
        self,
        shape: Shape,
        classes: int,
        params: Mapping[str, Any] | None = None,
    ) -> Size:
        """Size for samples of `shape` and `classes` classes. Raises ValueError naming the unsupported value."""
        assert self.measure is not None
        try:
            chosen = read_parameters(self.params, params or {})
            own = self.measure(shape, classes, chosen)
        except ValueError as error:
            raise ValueError(f"model {self.name}: {error}") from error
        if not isinstance(chosen, Features) or chosen.features is None:
            return own
        features = chosen.features
        # The layer before the classifier, and the classifier after it instead of the one before.
        wider = features * (own.features + classes)
        narrower = own.features * classes
        operations = 0
        layers = 0
        if own.layers:
            operations = own.operations + wider - narrower
            layers = own.layers + 1
        return replace(
            own,
            parameters=own.parameters + wider - narrower + features,
            features=features,
            operations=operations,
            values=own.values + features,
            saved=own.saved + features,
            layers=layers,
        )

    def parameters(
        self,
        shape: Shape,
        classes: int,
        params: Mapping[str, Any] | None = None,
    ) -> int:
        """Number of trained parameters for samples of `shape` and `classes` classes."""
        size = self.size(shape, classes, params)
        return size.parameters


def _described(name: str, summary: str, params: type[Parameters]) -> ModelEntry:
    """A model that is one of `NETWORKS`."""
    measure = partial(_measured, name)
    return ModelEntry(name, summary, params, measure)


def _measured(
    name: str,
    shape: Shape,
    classes: int,
    params: Any,
) -> Size:
    network = NETWORKS[name]
    layers = network(Layers(shape), classes, params)
    return layers.size()


def _mlp(shape: Shape, classes: int, params: MLP | HARMLP) -> Size:
    network = Layers(shape).flatten()
    for width in params.widths:
        network.linear(width).activation()
    network.features().linear(classes)
    return network.size()


def _build_mlp(shape: Shape, classes: int, params: MLP | HARMLP) -> _Modules:
    """Hidden layers with ReLU, for any shape."""
    from torch import nn

    # The weights are drawn in this order.
    widths = params.widths
    deeper = []
    for inside, width in itertools.pairwise(widths):
        linear = nn.Linear(inside, width)
        deeper.append(nn.Sequential(linear, nn.ReLU()))
    first = nn.Linear(math.prod(shape), widths[0])
    extractor = nn.Sequential(nn.Flatten(), first, nn.ReLU(), *deeper)
    classifier = nn.Linear(widths[-1], classes)
    return extractor, classifier


def _torchvision(shape: Shape, classes: int, params: Torchvision) -> Size:
    pictures = len(shape) == 3 and shape[0] in (1, 3)
    if not pictures:
        raise ValueError(f"takes images of one or three channels, not samples of shape {shape}")
    own = BACKBONES[params.architecture]
    side = params.image_size
    positions = 0
    if params.architecture == "vit-tiny":
        if side % PATCH:
            raise ValueError(f"image_size: {side} is no multiple of vit-tiny's patches of {PATCH}")
        patches = (side // PATCH) ** 2
        positions = patches * own.features
    multiple = math.ceil(side / HALVED) * HALVED
    scale = (multiple / MEASURED_AT) ** 2
    classifier = (own.features + 1) * classes
    operations = round(own.operations * scale)
    values = round(own.values * scale)
    saved = round(own.saved * scale)
    return replace(
        own,
        parameters=own.parameters + positions + classifier,
        operations=operations + own.features * classes,
        values=values + classes,
        saved=saved + own.features + classes,
        widest=round(own.widest * scale),
    )


MODELS: Mapping[str, ModelEntry] = by_name(
    _described("cnn", "two small 3x3 convolutions of stride 2 with batch normalisation (FedGen, FEELPGen)", Features),
    _described("phefl-cnn", "5x5 convolutions 32 and 64 with pooling, 512 features (McMahan 2017, PHE-FL)", Parameters),
    _described(
        "celeba-cnn",
        "three 3x3 convolutions 16, 32 and 64 of stride 2 with batch normalisation and pooling (FedGen, FEELPGen)",
        Features,
    ),
    ModelEntry("mlp", "hidden layers, one by default", MLP, _mlp, _build_mlp),
    ModelEntry("har-mlp", "hidden layers of 512, 128 and 64 (FEELPGen, UCI HAR)", HARMLP, _mlp, _build_mlp),
    _described(
        "fedfeat-cnn",
        "two 5x5 convolutions with pooling, and a classifier of two layers (FedFeat+)",
        Parameters,
    ),
    _described("resnet18", "ResNet-18 for small images, without batch normalisation (FedEDS)", ResNet),
    _described("lenet", "LeNet-5 (LeCun 1998): 84 features", Features),
    _described("separable-cnn", "depthwise separable convolutions with batch normalisation: 48 features", Features),
    _described("tiny-resnet", "residual blocks of 16, 32 and 64 channels: 64 features", Features),
    ModelEntry("char-transformer", "a causal transformer that predicts the next character", CharTransformer),
    ModelEntry("torchvision", "one of torchvision's networks (DFFKE)", Torchvision, _torchvision),
)
"""The models of edgebed."""


@dataclass(frozen=True)
class ModelGroup:
    """Models for clients with different models: client k gets member k modulo their number. All get ``params``."""

    name: str
    summary: str
    params: type[Parameters]
    members: tuple[tuple[str, Mapping[str, Any]], ...]

    def member(
        self,
        client: int,
        params: Mapping[str, Any] | None = None,
    ) -> tuple[str, dict[str, Any]]:
        """The model of a client, counted from 0, and that model's parameters."""
        place = client % len(self.members)
        name, own = self.members[place]
        chosen = read_parameters(self.params, params or {})
        shared = {entry.name: getattr(chosen, entry.name) for entry in fields(chosen)}
        return name, {**shared, **own}

    def size(
        self,
        shape: Shape,
        classes: int,
        params: Mapping[str, Any] | None = None,
    ) -> Size:
        """The size of the largest member, with the most features of any. ValueError naming an unsupported value."""
        sizes = self.sizes(shape, classes, params)
        return largest(sizes)

    def sizes(
        self,
        shape: Shape,
        classes: int,
        params: Mapping[str, Any] | None = None,
    ) -> list[Size]:
        """The size of each member. ValueError naming an unsupported value."""
        clients = range(len(self.members))
        chosen = [self.member(client, params) for client in clients]
        return [MODELS[name].size(shape, classes, own) for name, own in chosen]


def largest(sizes: Sequence[Size]) -> Size:
    """The size of the largest model, with the most features of any."""
    most_bytes = max(sizes, key=lambda size: size.bytes)
    most_features = max(size.features for size in sizes)
    return replace(most_bytes, features=most_features)


def _htfe(count: int) -> ModelGroup:
    architectures = list(BACKBONES)[:count]
    members = []
    for architecture in architectures:
        members.append(("torchvision", {"architecture": architecture}))
    summary = f"the first {count} of DFFKE's ten architectures"
    return ModelGroup(f"htfe-{count}", summary, ImageSize, tuple(members))


_SMALL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("cnn", {}),
    ("mlp", {}),
    ("lenet", {}),
    ("tiny-resnet", {}),
    ("separable-cnn", {}),
)


MODEL_GROUPS: Mapping[str, ModelGroup] = by_name(
    ModelGroup(
        "small",
        "five small networks for CPUs: cnn, mlp, lenet, tiny-resnet, separable-cnn",
        Features,
        _SMALL,
    ),
    *map(_htfe, (1, 2, 5, 10)),
)


def model_of(
    name: str,
    params: Mapping[str, Any],
    client: int,
) -> tuple[str, dict[str, Any]]:
    """The model of a client, counted from 0, and its parameters. `name` is a model or a group."""
    if name in MODEL_GROUPS:
        group = MODEL_GROUPS[name]
        return group.member(client, params)
    return name, dict(params)
