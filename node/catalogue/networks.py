"""Networks layer by layer. `Layers` adds up their sizes, and `node.learning.models` makes torch's modules of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from node.catalogue.datasets import Shape
from node.catalogue.sizes import Layers


def cnn(network: Layers, classes: int, _: Any) -> Layers:
    """FedGen's network for MNIST, also used by FEELPGen: 26,434 parameters for 28x28. No activation between the 32
    features and the classifier. Sequences (channels, time) get convolutions of 3 along time."""
    if len(network.shape) not in (2, 3):
        raise ValueError(f"takes images or sequences, not samples of shape {network.shape}; take mlp")
    for width in (6, 16):
        network.convolution(width, 3, stride=2, padding=1)
        network.normalisation().activation()
    network.flatten().linear(32)
    return network.features().linear(classes)


def celeba_cnn(network: Layers, classes: int, _: Any) -> Layers:
    """FedGen's network for CelebA, also used by FEELPGen: 25,954 parameters for 84x84 in colour. No activation between
    the 32 features and the classifier."""
    needs_pictures(network.shape, 43)
    for width in (16, 32, 64):
        network.convolution(width, 3, stride=2, padding=1)
        network.normalisation().activation().pooling()
    network.flatten().linear(32)
    return network.features().linear(classes)


def phefl_cnn(network: Layers, classes: int, _: Any) -> Layers:
    """The network of McMahan 2017 and PHE-FL: 1,663,370 parameters on MNIST, 2,156,490 on CIFAR-10."""
    needs_pictures(network.shape, 4)
    for width in (32, 64):
        network.convolution(width, 5, padding=2)
        network.activation().pooling()
    network.flatten()
    network.linear(512).activation()
    return network.features().linear(classes)


def fedfeat_cnn(network: Layers, classes: int, _: Any) -> Layers:
    """FedFeat+'s CNN (its Table I): 582,026 parameters on MNIST, 878,538 on CIFAR-10; 1024 features, 1600 for CIFAR-10.
    Table I does not give padding and pooling; they are PFLlib's."""
    needs_pictures(network.shape, 16)
    for width in (32, 64):
        network.convolution(width, 5)
        network.activation().pooling()
    network.flatten().features()
    network.linear(512).activation()
    return network.linear(classes)


def lenet(network: Layers, classes: int, _: Any) -> Layers:
    """LeNet-5 (LeCun, Bottou, Bengio, Haffner 1998) with ReLU and max pooling, its convolutions padded: 84 features."""
    needs_pictures(network.shape, 8)
    for width in (6, 16):
        network.convolution(width, 5, padding=2)
        network.activation().pooling()
    network.flatten()
    network.linear(120).activation()
    network.linear(84).activation()
    return network.features().linear(classes)


def separable_cnn(network: Layers, classes: int, _: Any) -> Layers:
    """Depthwise separable convolutions with batch normalisation (Howard 2017, MobileNets) to 16, 32 and 48 channels.
    Each halves the sides of the picture. Then mean pooling: 48 features."""
    needs_pictures(network.shape, 8)
    network.convolution(16, 3, stride=2, padding=1, bias=False)
    network.normalisation().activation()
    for inside, width in ((16, 32), (32, 48)):
        network.convolution(
            inside,
            3,
            stride=2,
            padding=1,
            groups=inside,
            bias=False,
        )
        network.normalisation().activation()
        network.convolution(width, 1, bias=False)
        network.normalisation().activation()
    network.mean().flatten()
    return network.features().linear(classes)


def resnet18(network: Layers, classes: int, params: Any) -> Layers:
    """ResNet-18 (He 2016) for small images, without batch normalisation, as FedEDS uses it: a 3x3 stem without pooling,
    four stages of two blocks with 64 to 512 channels (1 to 8 times `width`), mean pooling to 512 features."""
    width = params.width
    growth = (1, 1, 2, 2, 4, 4, 8, 8)
    widths = [width * factor for factor in growth]
    return _residual(network, classes, width, widths, params.initialisation)


def tiny_resnet(network: Layers, classes: int, _: Any) -> Layers:
    """A residual network for CPUs: one block each of 16, 32 and 64 channels, mean pooling to 64 features."""
    return _residual(network, classes, 16, [16, 32, 64], "fixup")


def _residual(
    network: Layers,
    classes: int,
    stem: int,
    widths: Sequence[int],
    initialisation: str,
) -> Layers:
    needs_pictures(network.shape, 8)
    network.convolution(stem, 3, padding=1)
    network.activation()
    for width in widths:
        network.residual(width, initialisation)
    network.mean().flatten()
    return network.features().linear(classes)


def needs_pictures(shape: Shape, side: int) -> None:
    """ValueError unless samples are pictures with sides of at least ``side`` pixels."""
    if len(shape) != 3 or min(shape[1:]) < side:
        raise ValueError(f"takes images of at least {side}x{side}, not samples of shape {shape}")


NETWORKS: Mapping[str, Callable[[Layers, int, Any], Layers]] = {
    "cnn": cnn,
    "phefl-cnn": phefl_cnn,
    "celeba-cnn": celeba_cnn,
    "fedfeat-cnn": fedfeat_cnn,
    "resnet18": resnet18,
    "lenet": lenet,
    "separable-cnn": separable_cnn,
    "tiny-resnet": tiny_resnet,
}
